#include "deploy/simulate/simulated_coordinator.h"

#include <algorithm>

#include "absl/memory/memory.h"
#include "common/base/check.h"
#include "deploy/simulate/simulated_server.h"

namespace tessera {
namespace {

// Whether the message is nothing but a plan, which a later plan replaces.
// A plan is the whole list of members, so that the last one says all.
bool IsPlanAlone(const v1::PlanMessage& message) {
  return message.has_plan() && !message.has_propose() && message.withdraw() == 0 &&
         !message.drain();
}

}  // namespace

absl::StatusOr<std::unique_ptr<SimulatedCoordinator>> SimulatedCoordinator::Create(
    JobFacts facts, int machine, SimulatedWorld* world) {
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<Coordinator> coordinator,
                           Coordinator::Create(std::move(facts), world->time()));
  return absl::WrapUnique(new SimulatedCoordinator(std::move(coordinator), machine, world));
}

// The coordinator's timer goes off as often as that of server/rpc/live_coordinator.cc.
SimulatedCoordinator::SimulatedCoordinator(std::unique_ptr<Coordinator> coordinator, int machine,
                                           SimulatedWorld* world)
    : coordinator_(std::move(coordinator)),
      machine_(machine),
      tick_(absl::ToInt64Nanoseconds(std::clamp(coordinator_->facts().lease_timeout / 8,
                                                absl::Milliseconds(10), absl::Milliseconds(250)))),
      world_(*world),
      links_(coordinator_->facts().servers) {}

void SimulatedCoordinator::StartTicking() {
  world_.events.After(tick_, [this] { Tick(); });
}

void SimulatedCoordinator::Tick() {
  coordinator_->Tick(world_.time());
  Deliver();
  if (!coordinator_->ended()) StartTicking();
}

void SimulatedCoordinator::Attach(SimulatedServer* server, v1::ServerHello hello) {
  links_[server->rank().value()].server = server;
  v1::ShardMessage message;
  *message.mutable_hello() = std::move(hello);
  FromServer(server, std::move(message));
}

void SimulatedCoordinator::FromServer(SimulatedServer* server, v1::ShardMessage message) {
  const auto rank = static_cast<uint32_t>(server->rank().value());
  links_[rank].to_coordinator.push_back(std::move(message));
  // Messages between two machines keep their order: the front one is the one that arrives.
  world_.network.Signal(server->machine(), machine_, [this, rank] {
    const v1::ShardMessage arrived = std::move(links_[rank].to_coordinator.front());
    links_[rank].to_coordinator.pop_front();
    if (arrived.has_hello()) {
      TESSERA_CHECK(coordinator_->Attach(arrived.hello(), world_.time()).ok());
    } else {
      coordinator_->OnShardMessage(ShardId(rank), arrived, world_.time());
    }
    Deliver();
  });
}

absl::StatusOr<v1::EvaluateReply> SimulatedCoordinator::Evaluate(
    SimulatedProcess* process, int from, const v1::EvaluateRequest& request) {
  struct Call {
    SimulatedCoordinator* to;
    const v1::EvaluateRequest* request;
    SimulatedProcess* process;
    int from;
    uint64_t ticket;
    absl::StatusOr<v1::EvaluateReply> reply;
  } call{this, &request, process, from, process->Ticket(), absl::CancelledError("cancelled")};
  world_.network.Signal(from, machine_, [c = &call] {
    SimulatedCoordinator& self = *c->to;
    const MemberId member(c->request->member());
    // The answer comes through Deliver, now or later.
    self.evaluators_[member] = {c->process, c->from, c->ticket, &c->reply};
    const absl::Status asked = self.coordinator_->Evaluate(*c->request, self.world_.time());
    if (!asked.ok()) {
      self.evaluators_.erase(member);
      c->reply = asked;
      self.world_.network.Signal(self.machine_, c->from, [c] { c->process->Wake(c->ticket); });
    }
    self.Deliver();
  });
  if (!process->Wait()) return absl::CancelledError("cancelled");
  return std::move(call.reply);
}

// If several plans are sent at the same moment only the last counts: thousands of workers leave at once.
void SimulatedCoordinator::Send(uint32_t server, v1::PlanMessage message) {
  Link& link = links_[server];
  if (!link.to_server.empty() && link.to_server.back().at == world_.events.now() &&
      IsPlanAlone(link.to_server.back().message) && IsPlanAlone(message)) {
    link.to_server.back().message = std::move(message);
    return;
  }
  link.to_server.push_back({std::move(message), world_.events.now()});
  world_.network.Signal(machine_, link.server->machine(), [this, server] {
    Link& arriving = links_[server];
    const v1::PlanMessage arrived = std::move(arriving.to_server.front().message);
    arriving.to_server.pop_front();
    arriving.server->OnPlanMessage(arrived);
  });
}

// What the coordinator has to say to others, after each event that it has taken.
void SimulatedCoordinator::Deliver() {
  for (Outgoing& outgoing : coordinator_->TakeOutbox()) {
    Send(static_cast<uint32_t>(outgoing.server.value()), std::move(outgoing.message));
  }
  for (Coordinator::EvaluateAnswer& answer : coordinator_->TakeReplies()) {
    const auto found = evaluators_.find(answer.member);
    if (found == evaluators_.end()) continue;
    const Evaluator evaluator = found->second;
    evaluators_.erase(found);
    *evaluator.reply = std::move(answer.reply);
    world_.network.Signal(
        machine_, evaluator.from,
        [process = evaluator.process, ticket = evaluator.ticket] { process->Wake(ticket); });
  }
}

}  // namespace tessera
