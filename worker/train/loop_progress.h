// What a train loop tells of itself: where it is, what it is at, and where its time goes.
#ifndef TESSERA_WORKER_TRAIN_LOOP_PROGRESS_H_
#define TESSERA_WORKER_TRAIN_LOOP_PROGRESS_H_

#include <cstdint>
#include <optional>

#include "common/keyset/subnet.h"
#include "worker/exchange/parameter_client.h"
#include "worker/exchange/traffic.h"
#include "worker/train/coordination.h"
#include "worker/train/epoch_walk.h"
#include "worker/train/learner.h"
#include "worker/train/phase_timer.h"
#include "worker/train/step_speed.h"
#include "worker/train/worker_state.h"

namespace tessera {

// What a worker did before the job went back to a checkpoint: the time from then on is its, too.
struct LifeBefore {
  PhaseTimer phases;
  Traffic traffic;
};

// One thread, the train loop's. As TrainWaits it counts the time that a minibatch waits for others as no work of this
// worker's.
class LoopProgress final : public TrainWaits {
 public:
  // All but `before` outlive it.
  LoopProgress(const Clock& clock, const std::optional<LifeBefore>& before, const EpochWalk* walk,
               const Learner* learner, const ParameterClient* servers, Coordination* coordination)
      : walk_(*walk),
        learner_(*learner),
        servers_(*servers),
        coordination_(*coordination),
        clock_(clock),
        phases_(before ? before->phases : PhaseTimer(clock)),
        told_phases_(phases_.seconds()),
        traffic_before_(before ? before->traffic : Traffic()) {}

  // Where the loop is. What it has of the minibatches' losses and examples, and the last exchange that was made, is
  // kept in `at`, whose other fields are filled in here.
  WorkerCursor at;
  WorkerCursor cursor() const;

  PhaseTimer& phases() { return phases_; }
  const PhaseTimer& phases() const { return phases_; }
  // With that of the life before.
  Traffic traffic() const;

  // From now on the loop is at this; whoever watches over it is told.
  void Begin(TrainWork work);
  void Tell() { coordination_.SetProgress(cursor().progress); }
  bool is_at(TrainWork work) const { return at.progress.work == work; }
  // The losses of minibatches are known.
  absl::Status Note(const absl::StatusOr<Losses>& losses);
  // A minibatch begins, and ends: whoever watches over the loop is told. What it waited for others does not count in
  // its speed.
  void BeginStep();
  void EndStep();
  // Minibatches are of the subnet at `place` from now on; nullopt: of the whole model.
  void SetPlace(const std::optional<SubnetPlace>& place);

  void BeginWait() override;
  void EndWait() override;

 private:
  const EpochWalk& walk_;
  const Learner& learner_;
  const ParameterClient& servers_;
  Coordination& coordination_;
  const Clock clock_;
  PhaseTimer phases_;
  // When the last minibatch ended: within an exchange time is counted first as one phase, then as another.
  PhaseSeconds told_phases_;
  const Traffic traffic_before_;
  StepSpeed speed_;
  std::optional<SubnetPlace> place_;
  int64_t batch_rows_ = 0;  // EpochCut's, of the minibatches that speed_ is of
  absl::Duration step_begin_;
  double waited_before_ = 0;  // until the present minibatch
};

}  // namespace tessera

#endif  // TESSERA_WORKER_TRAIN_LOOP_PROGRESS_H_
