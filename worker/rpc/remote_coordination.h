// The train loop's Coordination, answered by the coordinator over gRPC.
#ifndef TESSERA_WORKER_RPC_REMOTE_COORDINATION_H_
#define TESSERA_WORKER_RPC_REMOTE_COORDINATION_H_

#include <optional>
#include <vector>

#include "worker/rpc/coordinator_client.h"
#include "worker/train/coordination.h"

namespace tessera {

class RemoteCoordination final : public Coordination {
 public:
  // `client` has joined and outlives this.
  explicit RemoteCoordination(CoordinatorClient* client) : client_(*client) {}

  absl::Status BeginTraining() override { return client_.BeginTraining(); }
  absl::StatusOr<EpochCut> BeginEpoch(uint64_t epoch, uint64_t step) override;
  absl::StatusOr<EvaluationPlace> Arrive(const Arrival& arrival) override;
  absl::StatusOr<std::optional<std::vector<float>>> ShareConstants(
      const EvaluationPlace& place, std::vector<float> constants) override;
  absl::StatusOr<std::optional<EvaluationResult>> Score(const EvaluationPlace& place,
                                                        const EvaluationScores& scores) override;
  Exchange drain_exchange() const override { return client_.drain_exchange(); }
  int64_t step_budget() const override { return client_.step_budget(); }
  void SetProgress(const TrainProgress& progress) override;

 private:
  CoordinatorClient& client_;
  uint64_t attempt_ = 0;  // of the evaluation that was begun anew; 0: none was
};

}  // namespace tessera

#endif  // TESSERA_WORKER_RPC_REMOTE_COORDINATION_H_
