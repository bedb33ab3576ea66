// Where all members stop to see how good the model is: one worker's part of it.
//
//   1. It says that it has arrived, and waits until all have.
//   2. It reads what the servers have committed.
//   3. Part 0 calibrates batch norm on rows of the training data, the others are given the constants.
//   4. It scores its share of the test rows, and is told the sum.
//   If a member is lost meanwhile, all begin again.
#ifndef TESSERA_WORKER_TRAIN_WORKER_EVALUATION_H_
#define TESSERA_WORKER_TRAIN_WORKER_EVALUATION_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "common/method/recipe.h"
#include "proto/job.pb.h"
#include "worker/data/dataset.h"
#include "worker/exchange/parameter_client.h"
#include "worker/train/coordination.h"
#include "worker/train/evaluated_model.h"
#include "worker/train/loop_progress.h"

namespace tessera {

// One thread, the train loop's.
class WorkerEvaluation {
 public:
  // What it came to.
  struct Outcome {
    EvaluationResult result;
    // Of batch norms, as this one found them. Empty: none was made here, or the model has none.
    std::vector<float> norm_constants;
    // Rows behind the values that were scored; 0: none was read.
    uint64_t job_examples = 0;
  };

  // All outlive it.
  WorkerEvaluation(const v1::Job& job, const Recipe& recipe, const Datasets* data,
                   EvaluatedModel* model, ParameterClient* servers, Coordination* coordination,
                   LoopProgress* progress);

  // By a worker that has made exchange `after` and reads its part of the rows as `cut` says. Returns once it is over.
  // The first error is the worker's end.
  absl::StatusOr<Outcome> Run(const Coordination::Arrival& arrival, Exchange after,
                              const EpochCut& cut);

  // The word with which this worker rests from an exchange on, until the evaluation has read the values.
  IdleNotice NextRest() { return rest_ = {rest_.number + 1, true}; }
  bool rests() const { return rest_.rests; }
  // Whether its constants are those of a batch norm.
  bool calibrates() const { return calibrates_; }

 private:
  // nullopt: a member was lost in between, and all begin again.
  absl::StatusOr<std::optional<EvaluationResult>> Try(const Coordination::Arrival& arrival,
                                                      Exchange after, const EpochCut& cut,
                                                      Outcome* outcome);
  absl::StatusOr<std::vector<float>> Calibrate(const EpochCut& cut);

  const uint64_t seed_;
  const bool owns_rows_;  // each worker's rows are a part of the data
  const bool lockstep_;
  const bool calibrates_;  // the model has a batch norm
  const Datasets& data_;
  EvaluatedModel& model_;
  ParameterClient& servers_;
  Coordination& coordination_;
  LoopProgress& progress_;
  IdleNotice rest_;  // the last word to the servers
};

}  // namespace tessera

#endif  // TESSERA_WORKER_TRAIN_WORKER_EVALUATION_H_
