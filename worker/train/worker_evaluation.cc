#include "worker/train/worker_evaluation.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/layout/layers/layer_kinds.h"
#include "kernels/loss.h"
#include "worker/data/order.h"

namespace tessera {

WorkerEvaluation::WorkerEvaluation(const v1::Job& job, const Recipe& recipe, const Datasets* data,
                                   EvaluatedModel* model, ParameterClient* servers,
                                   Coordination* coordination, LoopProgress* progress)
    : seed_(job.seed()),
      owns_rows_(job.data().partition() == "shard"),
      lockstep_(recipe.lockstep),
      calibrates_(Calibrates(job.model())),
      data_(*data),
      model_(*model),
      servers_(*servers),
      coordination_(*coordination),
      progress_(*progress) {}

absl::StatusOr<WorkerEvaluation::Outcome> WorkerEvaluation::Run(
    const Coordination::Arrival& arrival, Exchange after, const EpochCut& cut) {
  Outcome outcome;
  std::optional<EvaluationResult> result;
  while (!result.has_value()) {
    // Where members advance on their own, those that are not here yet may wait for this one: it has just joined, or has
    // ended its rest in an attempt that failed.
    if (!rest_.rests && !lockstep_) {
      TESSERA_RETURN_IF_ERROR(model_.BeginEvaluation(&servers_, after, NextRest()).status());
    }
    TESSERA_ASSIGN_OR_RETURN(result, Try(arrival, after, cut, &outcome));
  }
  outcome.result = *result;
  return outcome;
}

absl::StatusOr<std::optional<EvaluationResult>> WorkerEvaluation::Try(
    const Coordination::Arrival& arrival, Exchange after, const EpochCut& cut, Outcome* outcome) {
  PhaseTimer& phases = progress_.phases();
  // Where all begin again the job's clock has not gone on.
  if (phases.phase() != Phase::kEvaluate) phases.Enter(Phase::kWait);
  TESSERA_ASSIGN_OR_RETURN(const EvaluationPlace place, coordination_.Arrive(arrival));
  phases.Enter(Phase::kEvaluate);
  // The servers may be gone by now.
  if (place.finished.has_value() && place.finished->stop) return place.finished;
  // It ends its rest before anybody goes on, so that none gets ahead of it.
  rest_.rests = false;
  // What the servers have committed is what counts, and where workers hold all of it, what training
  // goes on from.
  TESSERA_ASSIGN_OR_RETURN(const ExchangeResult read,
                           model_.BeginEvaluation(&servers_, after, rest_));
  outcome->job_examples = std::max(outcome->job_examples, read.job_examples);
  if (place.finished.has_value()) return place.finished;
  std::vector<float> constants;
  if (place.part == 0 && calibrates_) {
    TESSERA_ASSIGN_OR_RETURN(constants, Calibrate(cut));
  }
  TESSERA_ASSIGN_OR_RETURN(const std::optional<std::vector<float>> shared,
                           coordination_.ShareConstants(place, std::move(constants)));
  if (!shared.has_value()) return std::optional<EvaluationResult>();
  outcome->norm_constants = *shared;
  const std::vector<uint32_t> rows = EvaluationRows(data_.test.rows(), place.part, place.parts);
  progress_.Begin(TrainWork::kEvaluation);
  TESSERA_ASSIGN_OR_RETURN(const Scores scores, model_.Score(data_.test, rows, *shared));
  TESSERA_RETURN_IF_ERROR(data_.test.status());
  progress_.Begin(TrainWork::kNothing);
  EvaluationScores sums;
  sums.loss_sum = scores.loss_sum;
  sums.correct = scores.correct;
  sums.rows = scores.rows;
  sums.score_sum = scores.score_sum;
  for (int i = 0; i < 3; ++i) sums.precision_hits[i] = scores.precision_hits[i];
  sums.counts_hits = scores.counts_hits;
  if (scores.counts_hits && data_.test.outputs() > kTopDepth) {
    sums.top_hits = static_cast<double>(scores.top_hits);
  }
  return coordination_.Score(place, sums);
}

// Choosing the rows sorts all of them, so that only part 0 does it.
absl::StatusOr<std::vector<float>> WorkerEvaluation::Calibrate(const EpochCut& cut) {
  const bool owns_part = owns_rows_ && cut.part < cut.parts;
  const std::vector<uint32_t> rows = CalibrationRows(
      seed_, data_.train.rows(), owns_part ? cut.part : 0, owns_part ? cut.parts : 1);
  progress_.Begin(TrainWork::kEvaluation);
  TESSERA_ASSIGN_OR_RETURN(std::vector<float> constants, model_.Calibrate(data_.train, rows));
  TESSERA_RETURN_IF_ERROR(data_.train.status());
  progress_.Begin(TrainWork::kNothing);
  return constants;
}

}  // namespace tessera
