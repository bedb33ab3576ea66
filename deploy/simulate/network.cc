#include "deploy/simulate/network.h"

#include <algorithm>

#include "common/base/check.h"

namespace tessera {

SimNanos TransferNanos(int64_t bytes, int64_t bytes_per_second) {
  if (bytes_per_second == 0) return 0;
  // 128 bits: 2^63 bytes times 10^9.
  const __int128 nanos = static_cast<__int128>(bytes) * kNanosPerSecond;
  const __int128 time = (nanos + bytes_per_second - 1) / bytes_per_second;
  return static_cast<SimNanos>(std::min(time, static_cast<__int128>(kSimEnd)));
}

SimNetwork::SimNetwork(const Options& options, SimEventQueue* events,
                       std::vector<std::unique_ptr<SimMachine>>* machines)
    : options_(options), events_(*events), machines_(*machines), links_(machines->size()) {
  TESSERA_CHECK(options.bandwidth >= 0 && options.latency >= 0 && options.loopback_bandwidth >= 0);
}

SimNanos SimNetwork::Transfer(int from, int to, int64_t wire_bytes) const {
  return TransferNanos(wire_bytes, from == to ? options_.loopback_bandwidth : options_.bandwidth);
}

void SimNetwork::Send(int from, int to, int64_t wire_bytes, SmallCall delivered) {
  const SimNanos transfer = Transfer(from, to, wire_bytes);
  if (from == to) {
    // Copying takes a core, and waits for the machine's other tasks.
    machines_[from]->Run(Later(transfer, options_.message_cost), delivered);
    return;
  }
  Link& link = links_[from];
  // The uplink carries one message after the other.
  const SimNanos start = std::max(events_.now(), link.up_free);
  link.up_free = Later(start, transfer);
  link.sent_bytes += wire_bytes;
  uint32_t slot = static_cast<uint32_t>(messages_.size());
  if (free_messages_.empty()) {
    messages_.push_back({delivered, wire_bytes, to});
  } else {
    slot = free_messages_.back();
    free_messages_.pop_back();
    messages_[slot] = {delivered, wire_bytes, to};
  }
  // The first byte reaches the downlink after the latency, whatever the size.
  events_.At(Later(start, options_.latency), [this, slot] { EnterDownlink(slot); });
}

void SimNetwork::EnterDownlink(uint32_t message) {
  const Message arriving = messages_[message];
  // Its slot is free: what follows needs the copy only.
  free_messages_.push_back(message);
  Link& link = links_[arriving.to];
  link.received_bytes += arriving.wire_bytes;
  link.down_free = Later(std::max(events_.now(), link.down_free),
                         TransferNanos(arriving.wire_bytes, options_.bandwidth));
  events_.At(link.down_free, arriving.delivered);
}

}  // namespace tessera
