// What a train loop asks the coordinator, as calls to the simulated one.
//
// The mapping is worker/train/message_coordination.cc's, over coordinator_client.cc's calls without their
// retries.
#ifndef TESSERA_DEPLOY_SIMULATE_SIMULATED_COORDINATION_H_
#define TESSERA_DEPLOY_SIMULATE_SIMULATED_COORDINATION_H_

#include <optional>
#include <vector>

#include "deploy/simulate/simulated_coordinator.h"
#include "deploy/simulate/simulated_process.h"
#include "deploy/simulate/simulated_world.h"
#include "worker/train/message_coordination.h"

namespace tessera {

class SimulatedCoordination final : public MessageCoordination {
 public:
  // Coordinator, process and world outlive this.
  SimulatedCoordination(SimulatedCoordinator* coordinator, SimulatedProcess* process,
                        SimulatedWorld* world, int machine, MemberId member)
      : coordinator_(*coordinator),
        process_(*process),
        world_(*world),
        machine_(machine),
        member_(member) {}

  absl::Status BeginTraining() override;
  absl::Status EndWarmUp() override;
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
  absl::StatusOr<v1::EpochCut> AskEpoch(uint64_t epoch, uint64_t step) override;
  absl::StatusOr<v1::EvaluateReply> AskEvaluation(v1::EvaluateRequest request) override;

  SimulatedCoordinator& coordinator_;
  SimulatedProcess& process_;
  SimulatedWorld& world_;
  const int machine_;
  const MemberId member_;
  Exchange drain_exchange_;
  int64_t step_budget_ = 0;
  TrainProgress progress_;
  uint64_t evaluation_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_SIMULATE_SIMULATED_COORDINATION_H_
