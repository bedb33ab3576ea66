#include "tests/sim/sim_coordinator.h"

#include "common/base/check.h"

namespace tessera {

SimCoordinator::SimCoordinator(SimNetwork* network, JobFacts facts)
    : network_(network), node_(network->AddNode()) {
  absl::StatusOr<std::unique_ptr<Coordinator>> created =
      Coordinator::Create(std::move(facts), network->now());
  TESSERA_CHECK(created.ok());
  coordinator_ = *std::move(created);
  Tick();
}

void SimCoordinator::Tick() {
  coordinator_->Tick(network_->now());
  Deliver();
  network_->After(node_, coordinator_->facts().lease_timeout / 10, [this] { Tick(); });
}

void SimCoordinator::Attach(NodeId server, v1::ServerHello hello,
                            std::function<void(const v1::PlanMessage&)> deliver,
                            uint64_t connection) {
  const auto arrive = [this, server, hello, deliver = std::move(deliver), connection] {
    const absl::Status attached = coordinator_->Attach(hello, network_->now());
    // One that joins may be too early: another one of its rank is not known to be gone yet. One that
    // leads may be superseded.
    TESSERA_CHECK(attached.ok() || coordinator_->facts().replicated ||
                  coordinator_->facts().standbys);
    if (attached.ok()) {
      links_[ShardId(hello.rank())] = {server, hello.life(), connection, deliver};
    } else {
      v1::PlanMessage refusal;
      refusal.set_refuse(std::string(attached.message()));
      network_->Stream(node_, server, [deliver, refusal] { deliver(refusal); }, connection);
    }
    Deliver();
  };
  network_->Stream(server, node_, arrive, connection);
}

void SimCoordinator::FromServer(NodeId server, ShardId rank, v1::ShardMessage message,
                                uint64_t connection) {
  const auto arrive = [this, server, rank, message = std::move(message), connection] {
    // Another server has come in its place, or it has made another connection.
    const auto link = links_.find(rank);
    if (link == links_.end() || link->second.node != server) return;
    if (link->second.connection != connection) return;
    coordinator_->OnShardMessage(rank, message, network_->now());
    Deliver();
  };
  network_->Stream(server, node_, arrive, connection);
}

void SimCoordinator::Detach(ShardId rank, uint64_t connection) {
  network_->After(node_, absl::Milliseconds(20), [this, rank, connection] {
    const auto link = links_.find(rank);
    if (link == links_.end() || link->second.connection != connection) return;
    coordinator_->Detach(rank, link->second.life, network_->now());
    Deliver();
  });
}

void SimCoordinator::AttachHost(NodeId host, v1::HostMessage message,
                                std::function<void(const v1::HostOrder&)> deliver,
                                uint64_t connection) {
  const auto arrive = [this, host, message = std::move(message), deliver, connection] {
    const v1::HostHello& hello = message.hello();
    const absl::Status attached = coordinator_->AttachHost(hello, network_->now());
    if (attached.ok()) {
      hosts_[hello.rank()] = {host, hello.life(), connection, deliver};
    } else {
      v1::HostOrder refusal;
      refusal.set_refuse(std::string(attached.message()));
      network_->Stream(node_, host, [deliver, refusal] { deliver(refusal); }, connection);
    }
    Deliver();
  };
  network_->Stream(host, node_, arrive, connection);
}

void SimCoordinator::FromHost(NodeId host, uint32_t rank, v1::HostMessage message,
                              uint64_t connection) {
  const auto arrive = [this, rank, message = std::move(message), connection] {
    const auto link = hosts_.find(rank);
    if (link == hosts_.end() || link->second.connection != connection) return;
    coordinator_->OnHostMessage(rank, message, network_->now());
    Deliver();
  };
  network_->Stream(host, node_, arrive, connection);
}

void SimCoordinator::DetachHost(uint32_t rank, uint64_t connection) {
  network_->After(node_, absl::Milliseconds(5), [this, rank, connection] {
    const auto found = hosts_.find(rank);
    if (found == hosts_.end() || found->second.connection != connection) return;
    const uint64_t life = found->second.life;
    hosts_.erase(found);
    coordinator_->DetachHost(rank, life, network_->now());
    Deliver();
  });
}

void SimCoordinator::Evaluate(NodeId from, v1::EvaluateRequest request,
                              Done<v1::EvaluateReply> done) {
  network_->Call<absl::StatusOr<v1::EvaluateReply>>(
      from, node_,
      [this, request](std::function<void(absl::StatusOr<v1::EvaluateReply>)> answer) {
        const absl::Status asked = coordinator_->Evaluate(request, network_->now());
        if (asked.ok()) {
          auto& parked = parked_[MemberId(request.member())];
          if (parked)
            parked(absl::AbortedError("evaluate: a later call of this member replaced it"));
          parked = std::move(answer);
        } else {
          answer(asked);
        }
        Deliver();
      },
      std::move(done));
}

void SimCoordinator::Drain() {
  coordinator_->Drain("the simulation wants it", network_->now());
  Deliver();
}

bool SimCoordinator::training_is_over() const {
  for (const auto& [member, record] : coordinator_->membership().members().all()) {
    if (record.state == MemberState::kLeft && record.ended == "finished") return true;
  }
  return false;
}

void SimCoordinator::Deliver() {
  for (Outgoing& outgoing : coordinator_->TakeOutbox()) {
    const auto link = links_.find(outgoing.server);
    if (link == links_.end()) continue;
    network_->Stream(node_, link->second.node,
                     [deliver = link->second.deliver, message = std::move(outgoing.message)] {
                       deliver(message);
                     },
                     link->second.connection);
  }
  for (HostOutgoing& outgoing : coordinator_->TakeHostOutbox()) {
    const auto link = hosts_.find(outgoing.host);
    if (link == hosts_.end()) continue;
    network_->Stream(node_, link->second.node,
                     [deliver = link->second.deliver, order = std::move(outgoing.order)] {
                       deliver(order);
                     },
                     link->second.connection);
  }
  for (Coordinator::EvaluateAnswer& answer : coordinator_->TakeReplies()) {
    const auto parked = parked_.find(answer.member);
    if (parked == parked_.end()) continue;
    parked->second(std::move(answer.reply));
    parked_.erase(parked);
  }
}

}  // namespace tessera
