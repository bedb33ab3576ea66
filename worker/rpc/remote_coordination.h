// The train loop's Coordination, answered by the coordinator over gRPC.
#ifndef TESSERA_WORKER_RPC_REMOTE_COORDINATION_H_
#define TESSERA_WORKER_RPC_REMOTE_COORDINATION_H_

#include <optional>
#include <vector>

#include <utility>

#include "worker/rpc/coordinator_client.h"
#include "worker/train/message_coordination.h"

namespace tessera {

class RemoteCoordination final : public MessageCoordination {
 public:
  // `client` has joined and outlives this.
  explicit RemoteCoordination(CoordinatorClient* client) : client_(*client) {}

  absl::Status BeginTraining() override { return client_.BeginTraining(); }
  absl::Status EndWarmUp() override { return client_.EndWarmUp(); }
  Exchange drain_exchange() const override { return client_.drain_exchange(); }
  int64_t step_budget() const override { return client_.step_budget(); }
  void SetProgress(const TrainProgress& progress) override {
    client_.SetProgress(ToProto(progress));
  }

 private:
  absl::StatusOr<v1::EpochCut> AskEpoch(uint64_t epoch, uint64_t step) override {
    return client_.BeginEpoch(epoch, Step(step));
  }
  absl::StatusOr<v1::EvaluateReply> AskEvaluation(v1::EvaluateRequest request) override {
    return client_.Evaluate(std::move(request));
  }

  CoordinatorClient& client_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_RPC_REMOTE_COORDINATION_H_
