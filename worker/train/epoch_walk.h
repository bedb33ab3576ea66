// Where a worker is in its data: the epochs, as the coordinator cuts them, and the minibatches of each.
#ifndef TESSERA_WORKER_TRAIN_EPOCH_WALK_H_
#define TESSERA_WORKER_TRAIN_EPOCH_WALK_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/ids.h"
#include "common/method/recipe.h"
#include "proto/job.pb.h"
#include "worker/data/dataset.h"
#include "worker/data/order.h"
#include "worker/data/order_cache.h"
#include "worker/train/coordination.h"
#include "worker/train/rows_ahead.h"

namespace tessera {

// One thread, the train loop's.
class EpochWalk {
 public:
  // A place that a walk was at.
  struct Place {
    uint64_t step = 0;  // minibatches behind this worker, those before it joined included
    uint64_t epoch = 0;
    EpochCut cut;
  };

  // Begins at `place`, whose cut is not known yet. All but `orders`, which may be nullptr, are borrowed.
  EpochWalk(const v1::Job& job, const Recipe& recipe, Rank rank, const Place& place,
            OrderCache* orders, const Dataset* rows, Coordination* coordination);

  const Place& place() const { return place_; }
  uint64_t step() const { return place_.step; }
  uint64_t epoch() const { return place_.epoch; }
  const EpochCut& cut() const { return place_.cut; }
  const Dataset& data() const { return data_; }
  // The job has no more minibatches.
  bool Finished() const;
  // Minibatches that are left, if members stay as they are. The same for all where exchanges are.
  uint64_t StepsLeft() const;
  // Whether an evaluation is due once so many epochs are over.
  bool EvaluatesAfter(uint64_t epochs) const;

  // Asks the coordinator how the epoch is cut. Right also for a worker that joined in the middle of one. Returns how
  // many evaluations the other members have yet to come to before the step that this worker begins with.
  absl::StatusOr<int> BeginEpoch();
  // Draws the order of the epoch's rows.
  //   kInvalidArgument  the epoch has other steps with this worker's rows than with those of the others, or the
  //                     coordinator gave it more rows than it may have
  absl::Status BeginOrder();

  // The rows of the minibatch behind the present one; empty where that is another epoch's. They live until the next
  // call.
  absl::Span<const uint32_t> NextRows();
  // The rows of the present minibatch, until the next call of any method; empty where minibatches are of rows of
  // others.
  absl::Span<const uint32_t> Rows();
  // The present minibatch is done. True: the epoch is, too.
  bool EndStep();
  void EndEpoch() { ++place_.epoch; }
  // What was walked since `place` is void.
  absl::Status GoBackTo(const Place& place);

 private:
  uint64_t step_in_epoch() const { return place_.step - place_.cut.first_step; }

  const v1::Job& job_;
  const bool lockstep_;
  const bool reads_rows_;  // minibatches are of rows of the job's data that this worker has
  const Rank rank_;
  const Dataset& data_;
  Coordination& coordination_;
  EpochOrder order_;
  RowsAhead ahead_;
  Place place_;
  std::vector<uint32_t> next_rows_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_TRAIN_EPOCH_WALK_H_
