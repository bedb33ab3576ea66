// What the train loop asks the coordinator. Each call may wait for other members, and fails with a
// message that says why when this worker is no member any more.
#ifndef TESSERA_WORKER_TRAIN_COORDINATION_H_
#define TESSERA_WORKER_TRAIN_COORDINATION_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "worker/exchange/traffic.h"
#include "worker/train/phase_timer.h"

namespace tessera {

// What the train loop is at by itself; kNothing while it waits for others.
enum class TrainWork { kNothing, kMinibatch, kEvaluation };

// Where a worker is.
struct TrainProgress {
  uint64_t step = 0;
  uint64_t exchange = 0;
  uint64_t examples = 0;
  uint64_t epoch = 0;
  // The loss of the last minibatch whose loss is known; nullopt: none is known.
  std::optional<double> train_loss = std::nullopt;
  // Of computing, as of late; 0: not known yet.
  double steps_per_second = 0;
  // The minibatches that it is of; those of another part of the model, or of another size, do not count.
  uint64_t speed_steps = 0;
  // Rows of each minibatch, where slower workers have smaller ones; else 0.
  uint64_t batch_rows = 0;
  TrainWork work = TrainWork::kNothing;
  // Grows whenever the loop begins or ends something.
  uint64_t beats = 0;
  Traffic traffic = {};
  PhaseSeconds phases = {};
};

// Whose rows are whose in one epoch.
struct EpochCut {
  int64_t parts = 1;
  // parts itself: this worker joined later and reads an order of its own.
  int64_t part = 0;
  int64_t steps = 0;
  // The step at which the epoch begins.
  uint64_t first_step = 0;
  // Rows of all members together, where each has its own.
  int64_t rows_total = 0;
  // Where slower workers have smaller minibatches: the rows of this one's, and those of the members before it in each
  // step. 0: all have train.batch_size.
  int64_t batch_rows = 0;
  int64_t rows_before = 0;
};

struct EvaluationResult {
  double test_loss = 0;
  double test_accuracy = 0;
  // Training ends here: the target is reached, or the job is being drained.
  bool stop = false;
};

// This member's part in one attempt at an evaluation.
struct EvaluationPlace {
  uint64_t evaluation = 0;
  uint64_t attempt = 0;
  int64_t parts = 1;
  // Part 0 calibrates.
  int64_t part = 0;
  // The evaluation has ended without this member; there is nothing to do.
  std::optional<EvaluationResult> finished;
};

// Sums over one member's share of the test rows.
struct EvaluationScores {
  double loss_sum = 0;
  uint64_t correct = 0;
  uint64_t rows = 0;
  // Rows whose label is among the first 1, 3, 5 predictions.
  double precision_hits[3] = {};
  // Rows whose label is among the first 10, where there are more than 10 outputs.
  std::optional<double> top_hits;
  // Whether the hits above were counted.
  bool counts_hits = true;
  // Over `rows`, of what a caller's own model calls its score, in place of `correct` and hits.
  std::optional<double> score_sum;
};

// One thread, the train loop's, except SetProgress.
class Coordination {
 public:
  virtual ~Coordination() = default;

  // The first minibatch begins.
  virtual absl::Status BeginTraining() = 0;
  virtual absl::StatusOr<EpochCut> BeginEpoch(uint64_t epoch, uint64_t step) = 0;
  // This worker was to train alone until here (Recipe::warmup_steps): returns once all have begun that can. In
  // most methods nobody is to.
  virtual absl::Status EndWarmUp() { return absl::OkStatus(); }

  // The stages of an evaluation. Arrive returns when all members have stopped.
  struct Arrival {
    TrainProgress progress;
    // Of the minibatches since the last evaluation.
    double loss_sum = 0;
    uint64_t loss_count = 0;
    // Training ends with this evaluation.
    bool last = false;
  };
  virtual absl::StatusOr<EvaluationPlace> Arrive(const Arrival& arrival) = 0;
  // Part 0 gives the constants, the others get them. nullopt: a member was lost, begin again with
  // Arrive.
  virtual absl::StatusOr<std::optional<std::vector<float>>> ShareConstants(
      const EvaluationPlace& place, std::vector<float> constants) = 0;
  // nullopt as above.
  virtual absl::StatusOr<std::optional<EvaluationResult>> Score(const EvaluationPlace& place,
                                                                const EvaluationScores& scores) = 0;

  // The job is to end early: evaluate after this exchange, or the next one if it has passed. 0: it
  // is not.
  virtual Exchange drain_exchange() const = 0;
  // Minibatches until the next exchange, where the method gives slower workers fewer; 0: as the job
  // says.
  virtual int64_t step_budget() const = 0;
  // For the next renewal of the lease. Any thread.
  virtual void SetProgress(const TrainProgress& progress) = 0;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_TRAIN_COORDINATION_H_
