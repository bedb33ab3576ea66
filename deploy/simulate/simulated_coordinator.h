// The real coordinator of server 0, and the way of messages to it and back.
//
// Every request and answer takes the network's latency; none is lost.
#ifndef TESSERA_DEPLOY_SIMULATE_SIMULATED_COORDINATOR_H_
#define TESSERA_DEPLOY_SIMULATE_SIMULATED_COORDINATOR_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "deploy/simulate/simulated_process.h"
#include "deploy/simulate/simulated_world.h"
#include "proto/coordinator.pb.h"
#include "server/control/coordinator.h"

namespace tessera {

class SimulatedServer;

class SimulatedCoordinator {
 public:
  // kInvalidArgument: the facts contradict themselves.
  static absl::StatusOr<std::unique_ptr<SimulatedCoordinator>> Create(JobFacts facts, int machine,
                                                                      SimulatedWorld* world);

  Coordinator& state() { return *coordinator_; }
  const Coordinator& state() const { return *coordinator_; }

  // Has the coordinator's timer go off from now on, which ends leases.
  void StartTicking();

  // --- servers ---
  void Attach(SimulatedServer* server, v1::ServerHello hello);
  void FromServer(SimulatedServer* server, v1::ShardMessage message);

  // --- workers ---

  // Called by a process: asks request(coordinator, time) there and waits for what it returns.
  // kCancelled: the process is to end.
  template <typename Request>
  auto Ask(SimulatedProcess* process, int from, Request request)
      -> decltype(request(std::declval<Coordinator&>(), absl::Time())) {
    using Reply = decltype(request(std::declval<Coordinator&>(), absl::Time()));
    // The call lies on the stack of a process that waits until the answer is here, and that is not unwound before the
    // last event.
    struct Call {
      SimulatedCoordinator* to;
      SimulatedProcess* process;
      Request* request;
      int from;
      uint64_t ticket;
      Reply reply;
    } call{this, process, &request, from, process->Ticket(), absl::CancelledError("cancelled")};
    world_.network.Signal(from, machine_, [c = &call] {
      c->reply = (*c->request)(*c->to->coordinator_, c->to->world_.time());
      c->to->Deliver();
      c->to->world_.network.Signal(c->to->machine_, c->from, [c] { c->process->Wake(c->ticket); });
    });
    if (!process->Wait()) return absl::CancelledError("cancelled");
    return std::move(call.reply);
  }

  // Asks like Ask, for the call that waits for other members.
  absl::StatusOr<v1::EvaluateReply> Evaluate(SimulatedProcess* process, int from,
                                             const v1::EvaluateRequest& request);

  // Runs event(coordinator, time) there, a latency from now. Nobody waits.
  void Tell(int from, SmallCall event) { world_.network.Signal(from, machine_, event); }

  // Sends what the state machine wants sent. After every event that it was given directly.
  void Deliver();

  int machine() const { return machine_; }

 private:
  struct Sent {
    v1::PlanMessage message;
    SimNanos at = 0;
  };
  struct Link {
    SimulatedServer* server = nullptr;
    // Messages on their way, in order.
    std::deque<Sent> to_server;
    std::deque<v1::ShardMessage> to_coordinator;
  };
  struct Evaluator {
    SimulatedProcess* process = nullptr;
    int from = 0;
    uint64_t ticket = 0;
    absl::StatusOr<v1::EvaluateReply>* reply = nullptr;
  };

  SimulatedCoordinator(std::unique_ptr<Coordinator> coordinator, int machine,
                       SimulatedWorld* world);
  void Tick();
  void Send(uint32_t server, v1::PlanMessage message);

  const std::unique_ptr<Coordinator> coordinator_;
  const int machine_;
  const SimNanos tick_;
  SimulatedWorld& world_;
  std::vector<Link> links_;
  std::map<MemberId, Evaluator> evaluators_;
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_SIMULATE_SIMULATED_COORDINATOR_H_
