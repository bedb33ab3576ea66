// What a train loop asks the coordinator, as calls to the simulated one.
//
// The mapping is worker/rpc/remote_coordination.cc's and coordinator_client.cc's, without their
// retries.
#ifndef TESSERA_DEPLOY_SIMULATE_SIMULATED_COORDINATION_H_
#define TESSERA_DEPLOY_SIMULATE_SIMULATED_COORDINATION_H_

#include <optional>
#include <vector>

#include "deploy/simulate/simulated_coordinator.h"
#include "worker/train/coordination.h"

namespace tessera {

v1::Progress ToProto(const TrainProgress& progress);

class SimulatedCoordination final : public Coordination {
 public:
  // Both outlive this.
  SimulatedCoordination(SimulatedCoordinator* coordinator, SimulatedProcess* process, int machine,
                        MemberId member)
      : coordinator_(*coordinator), process_(*process), machine_(machine), member_(member) {}

  absl::Status BeginTraining() override;
  absl::StatusOr<EpochCut> BeginEpoch(uint64_t epoch, uint64_t step) override;
  absl::StatusOr<EvaluationPlace> Arrive(const Arrival& arrival) override;
  absl::StatusOr<std::optional<std::vector<float>>> ShareConstants(
      const EvaluationPlace& place, std::vector<float> constants) override;
  absl::StatusOr<std::optional<EvaluationResult>> Score(const EvaluationPlace& place,
                                                        const EvaluationScores& scores) override;
  Exchange drain_exchange() const override { return drain_exchange_; }
  int64_t step_budget() const override { return step_budget_; }
  void SetProgress(const TrainProgress& progress) override { progress_ = progress; }

  // What the renewals of the lease say and hear.
  const TrainProgress& progress() const { return progress_; }
  void OnRenewed(const v1::RenewReply& reply) {
    drain_exchange_ = Exchange(reply.drain_exchange());
    step_budget_ = static_cast<int64_t>(reply.step_budget());
  }

 private:
  absl::StatusOr<v1::EvaluateReply> Evaluate(v1::EvaluateRequest request);

  SimulatedCoordinator& coordinator_;
  SimulatedProcess& process_;
  const int machine_;
  const MemberId member_;
  Exchange drain_exchange_;
  int64_t step_budget_ = 0;
  TrainProgress progress_;
  uint64_t evaluation_ = 0;
  uint64_t attempt_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_SIMULATE_SIMULATED_COORDINATION_H_
