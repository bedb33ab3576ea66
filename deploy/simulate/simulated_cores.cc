#include "deploy/simulate/simulated_cores.h"

#include <utility>

#include "common/keyset/entry_keys.h"
#include "deploy/simulate/exchange_sizes.h"
#include "deploy/simulate/simulated_server.h"

namespace tessera {

SimulatedCores::SimulatedCores(const SimulatedClientOptions* options, SimulatedWorld* world,
                               SimulatedProcess* process,
                               const std::vector<std::unique_ptr<SimulatedServer>>* servers)
    : options_(*options),
      world_(*world),
      process_(*process),
      servers_(*servers),
      request_wire_bytes_(PullWireBytes(CallerOf(options->member, options->job_digest), KeySet())) {
}

void SimulatedCores::Ask(uint64_t number) {
  // As worker/rpc/core_calls.cc asks: all servers at once.
  cores_.assign(servers_.size(), nullptr);
  left_ = servers_.size();
  failed_ = absl::OkStatus();
  ++call_;
  wanted_ = number;
  for (uint32_t s = 0; s < servers_.size(); ++s) {
    world_.network.Signal(options_.machine, servers_[s]->machine(), [this, s, call = call_] {
      // The worker asks for another core by now, or has crashed.
      if (call != call_ || process_.crashed()) return;
      servers_[s]->TakeCoreRequest({options_.member, wanted_, this, call});
    });
  }
}

int64_t SimulatedCores::Answer(ShardId server, uint64_t call,
                               absl::StatusOr<std::shared_ptr<const Core>> core) {
  if (call != call_) return 0;
  const int64_t bytes =
      core.ok() ? static_cast<int64_t>(EncodeKeys((*core)->keys).bytes.size()) : 0;
  const int64_t wire_bytes = AnswerWireBytes(nullptr, bytes);
  traffic_.pull_payload_bytes += bytes;
  traffic_.pull_wire_bytes += request_wire_bytes_ + wire_bytes;
  // The core is on its way for a while; nobody looks at it before it has come.
  if (core.ok()) cores_[server.value()] = *std::move(core);
  if (!core.ok() && failed_.ok()) failed_ = core.status();
  world_.network.Send(servers_[server.value()]->machine(), options_.machine, wire_bytes,
                      [this, call] {
                        if (call != call_) return;
                        // ticket_ is 0 while nobody waits.
                        if (--left_ == 0 && ticket_ != 0) process_.Wake(ticket_);
                      });
  return bytes;
}

absl::StatusOr<Cores> SimulatedCores::Take() {
  if (left_ > 0) {
    ticket_ = process_.Ticket();
    const bool woken = process_.WaitInterruptibly();
    ticket_ = 0;
    if (!woken) return absl::CancelledError("parameter client: cancelled");
  }
  if (!failed_.ok()) return failed_;
  return cores_;
}

}  // namespace tessera
