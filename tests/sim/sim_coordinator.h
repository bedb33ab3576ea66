// The real coordinator on a simulated node.
#ifndef TESSERA_TESTS_SIM_SIM_COORDINATOR_H_
#define TESSERA_TESTS_SIM_SIM_COORDINATOR_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "proto/coordinator.pb.h"
#include "server/control/coordinator.h"
#include "tests/sim/sim_network.h"

namespace tessera {

class SimCoordinator {
 public:
  SimCoordinator(SimNetwork* network, JobFacts facts);

  NodeId node() const { return node_; }
  Coordinator& state() { return *coordinator_; }
  const Coordinator& state() const { return *coordinator_; }

  // A server's standing connection. Its messages go to `deliver`, on its own node.
  void Attach(NodeId server, v1::ServerHello hello,
              std::function<void(const v1::PlanMessage&)> deliver, uint64_t connection = 0);
  void FromServer(NodeId server, ShardId rank, v1::ShardMessage message, uint64_t connection = 0);
  // The connection of a dead server ends.
  void Detach(ShardId rank, uint64_t connection = 0);

  // A host's. Its message is the first that is said over it.
  void AttachHost(NodeId host, v1::HostMessage message,
                  std::function<void(const v1::HostOrder&)> deliver, uint64_t connection);
  void FromHost(NodeId host, uint32_t rank, v1::HostMessage message, uint64_t connection);
  void DetachHost(uint32_t rank, uint64_t connection);

  // One request of a worker; nullopt: the call was lost, ask again.
  template <typename Reply>
  using Done = std::function<void(std::optional<absl::StatusOr<Reply>>)>;
  template <typename Reply>
  void Ask(NodeId from, std::function<absl::StatusOr<Reply>(Coordinator&, absl::Time)> request,
           Done<Reply> done) {
    network_->Call<absl::StatusOr<Reply>>(
        from, node_,
        [this, request = std::move(request)](std::function<void(absl::StatusOr<Reply>)> answer) {
          answer(request(*coordinator_, network_->now()));
          Deliver();
        },
        std::move(done));
  }
  void Evaluate(NodeId from, v1::EvaluateRequest request, Done<v1::EvaluateReply> done);
  void Drain();
  // A member has left because training has ended: a plan may be without it, and without its part.
  bool training_is_over() const;

 private:
  struct Link {
    NodeId node;
    uint64_t life = 0;
    uint64_t connection = 0;
    std::function<void(const v1::PlanMessage&)> deliver;
  };
  struct HostLink {
    NodeId node;
    uint64_t life = 0;
    uint64_t connection = 0;
    std::function<void(const v1::HostOrder&)> deliver;
  };

  void Tick();
  // Sends what the state machine wants sent.
  void Deliver();

  SimNetwork* const network_;
  const NodeId node_;
  std::unique_ptr<Coordinator> coordinator_;
  std::map<ShardId, Link> links_;
  std::map<uint32_t, HostLink> hosts_;
  std::map<MemberId, std::function<void(absl::StatusOr<v1::EvaluateReply>)>> parked_;
};

}  // namespace tessera

#endif  // TESSERA_TESTS_SIM_SIM_COORDINATOR_H_
