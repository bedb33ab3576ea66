// What a checkpoint keeps of a worker, and where it is kept.
//
// The loop knows when: its pull says that the values it has just adopted are in a checkpoint. What it is
// then, no server has: where it is in the data, what its learner keeps for itself, and what its codec
// holds back.
#ifndef TESSERA_WORKER_TRAIN_WORKER_STATE_H_
#define TESSERA_WORKER_TRAIN_WORKER_STATE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/train/coordination.h"
#include "worker/train/private_state.h"

namespace tessera {

// Where the loop is. All else about the data follows from the step (worker/data/order.h).
struct WorkerCursor {
  TrainProgress progress;
  bool evaluation_due = false;
  // Of the minibatches since the last evaluation.
  double loss_sum = 0;
  uint64_t loss_count = 0;
  // Of batch norms, as an evaluation of what the servers have just committed found them. Empty: none was made here, or
  // the model has none.
  std::vector<float> norm_constants = {};
};

// One thread, the train loop's.
class WorkerStore {
 public:
  virtual ~WorkerStore() = default;

  // Copies the state, and writes it while the loop goes on; never waits for a disk. Whether it was
  // written only the coordinator is told: a checkpoint that fails is no reason to stop.
  virtual void Save(uint64_t number, uint64_t folder_step, const WorkerCursor& cursor,
                    const PrivateState& state) = 0;
  // Training is over: writes to the last checkpoint, if there is to be one, at each time that it is tried.
  // Returns when that is whole, or has failed for good.
  virtual void SaveLast(const WorkerCursor& cursor, const PrivateState& state) = 0;
  // Fills `state` with what was saved. nullopt: nothing was, or it is of no use now; `state` is as it was.
  virtual absl::StatusOr<std::optional<WorkerCursor>> Load(const PrivateState& state) = 0;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_TRAIN_WORKER_STATE_H_
