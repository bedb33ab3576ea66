// The links of simulated machines.
//
//   sender's uplink  ->  latency  ->  receiver's downlink
//
// Each direction of a link carries one message after the other, at `bandwidth`. A message is cut
// through, not stored and forwarded: its first byte enters the downlink a latency after it left,
// so that one that finds both links free takes latency + size / bandwidth. Messages enter a downlink
// in the order in which their first bytes arrive.
// Processes of one machine speak through its loopback: no latency, but copying is work for one of its
// cores (machine.h), which the message has to itself or shares with whatever else runs there.
#ifndef TESSERA_DEPLOY_SIMULATE_NETWORK_H_
#define TESSERA_DEPLOY_SIMULATE_NETWORK_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "deploy/simulate/event_queue.h"
#include "deploy/simulate/machine.h"
#include "deploy/simulate/small_call.h"

namespace tessera {

// The time that `bytes` take at `bytes_per_second`, rounded up; 0 bytes per second: no time.
SimNanos TransferNanos(int64_t bytes, int64_t bytes_per_second);

class SimNetwork {
 public:
  struct Options {
    // Each link's bytes per second, each way; 0: no limit.
    int64_t bandwidth = 0;
    SimNanos latency = 0;
    // The bytes per second that a core moves between processes of one machine.
    int64_t loopback_bandwidth = 0;
    // What a core does for each message between processes of one machine beside its bytes.
    SimNanos message_cost = 0;
  };

  // Events and machines outlive the network.
  SimNetwork(const Options& options, SimEventQueue* events,
             std::vector<std::unique_ptr<SimMachine>>* machines);

  // `delivered` runs when the last of `wire_bytes` is there. Between two different machines messages
  // arrive in the order in which they were sent.
  void Send(int from, int to, int64_t wire_bytes, SmallCall delivered);
  // A message so short that it slips in between: it takes the latency only, and no bandwidth.
  void Signal(int from, int to, SmallCall delivered) {
    events_.After(from == to ? 0 : options_.latency, delivered);
  }

  // The time from a message's first byte to its last, on a free link between the two.
  SimNanos Transfer(int from, int to, int64_t wire_bytes) const;

  int machines() const { return static_cast<int>(links_.size()); }
  // Bytes that left and reached a machine through its link.
  int64_t sent_bytes(int machine) const { return links_[machine].sent_bytes; }
  int64_t received_bytes(int machine) const { return links_[machine].received_bytes; }

 private:
  struct Link {
    // The times at which each direction has carried all that it was given.
    SimNanos up_free = 0;
    SimNanos down_free = 0;
    int64_t sent_bytes = 0;
    int64_t received_bytes = 0;
  };
  struct Message {
    SmallCall delivered;
    int64_t wire_bytes = 0;
    int to = 0;
  };

  void EnterDownlink(uint32_t message);

  const Options options_;
  SimEventQueue& events_;
  std::vector<std::unique_ptr<SimMachine>>& machines_;
  std::vector<Link> links_;
  // Messages on their way to a downlink.
  std::vector<Message> messages_;
  std::vector<uint32_t> free_messages_;
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_SIMULATE_NETWORK_H_
