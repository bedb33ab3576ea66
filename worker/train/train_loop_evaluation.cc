// Where all stop to see how good the model is.
#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "kernels/loss.h"
#include "worker/train/train_loop.h"

namespace tessera {
absl::Status TrainLoop::Evaluate(bool last) {
  evaluated_ = cursor();
  Begin(TrainWork::kNothing);
  Coordination::Arrival arrival;
  arrival.progress = progress();
  arrival.loss_sum = loss_sum_;
  arrival.loss_count = loss_count_;
  arrival.last = last;
  std::optional<EvaluationResult> result;
  while (!result.has_value()) {
    // Where members advance on their own, those that are not here yet may wait for this one: it has
    // just joined, or has ended its rest in an attempt that failed.
    if (!rest_.rests && !options_.recipe.lockstep) {
      TESSERA_RETURN_IF_ERROR(learner_.BeginEvaluation(&servers_, exchange_, NextRest()).status());
    }
    TESSERA_ASSIGN_OR_RETURN(result, EvaluateOnce(arrival));
  }
  stop_ = result->stop;
  loss_sum_ = 0;
  loss_count_ = 0;
  evaluation_due_ = false;
  phases_.Enter(Phase::kPull);
  if (!stop_ && !Finished()) {
    TESSERA_ASSIGN_OR_RETURN(const bool pulls_again, learner_.EndEvaluation());
    TESSERA_RETURN_IF_ERROR(SavePutOff(evaluated_));
    if (pulls_again || fetch_due_) TESSERA_RETURN_IF_ERROR(Fetch().status());
  }
  phases_.Enter(Phase::kCompute);
  return absl::OkStatus();
}

// nullopt: a member was lost in between, and all begin again.
absl::StatusOr<std::optional<EvaluationResult>> TrainLoop::EvaluateOnce(
    const Coordination::Arrival& arrival) {
  // Where all begin again the job's clock has not gone on.
  if (phases_.phase() != Phase::kEvaluate) phases_.Enter(Phase::kWait);
  TESSERA_ASSIGN_OR_RETURN(const EvaluationPlace place, coordination_.Arrive(arrival));
  phases_.Enter(Phase::kEvaluate);
  // The servers may be gone by now.
  if (place.finished.has_value() && place.finished->stop) return place.finished;
  // It ends its rest before anybody goes on, so that none gets ahead of it.
  rest_.rests = false;
  // What the servers have committed is what counts, and where workers hold all of it, what training
  // goes on from.
  TESSERA_ASSIGN_OR_RETURN(const ExchangeResult read,
                           learner_.BeginEvaluation(&servers_, exchange_, rest_));
  job_examples_ = std::max(job_examples_, read.job_examples);
  if (place.finished.has_value()) return place.finished;
  std::vector<float> constants;
  // Choosing the rows sorts all.
  if (place.part == 0 && calibrates_) {
    const bool owns_part = options_.job.data().partition() == "shard" && cut_.part < cut_.parts;
    const std::vector<uint32_t> rows =
        CalibrationRows(options_.job.seed(), data_.train.rows(), owns_part ? cut_.part : 0,
                        owns_part ? cut_.parts : 1);
    Begin(TrainWork::kEvaluation);
    TESSERA_ASSIGN_OR_RETURN(constants, learner_.Calibrate(data_.train, rows));
    TESSERA_RETURN_IF_ERROR(data_.train.status());
    Begin(TrainWork::kNothing);
  }
  TESSERA_ASSIGN_OR_RETURN(const std::optional<std::vector<float>> shared,
                           coordination_.ShareConstants(place, std::move(constants)));
  if (!shared.has_value()) return std::optional<EvaluationResult>();
  evaluated_.norm_constants = *shared;
  const std::vector<uint32_t> rows = EvaluationRows(data_.test.rows(), place.part, place.parts);
  Begin(TrainWork::kEvaluation);
  TESSERA_ASSIGN_OR_RETURN(const Scores scores, learner_.Score(data_.test, rows, *shared));
  TESSERA_RETURN_IF_ERROR(data_.test.status());
  Begin(TrainWork::kNothing);
  EvaluationScores sums;
  sums.loss_sum = scores.loss_sum;
  sums.correct = scores.correct;
  sums.rows = scores.rows;
  for (int i = 0; i < 3; ++i) sums.precision_hits[i] = scores.precision_hits[i];
  if (data_.test.outputs() > kTopDepth) sums.top_hits = static_cast<double>(scores.top_hits);
  return coordination_.Score(place, sums);
}

absl::Status TrainLoop::SavePutOff(const WorkerCursor& cursor) {
  if (!put_off_) return absl::OkStatus();
  const auto [number, folder_step] = *std::exchange(put_off_, std::nullopt);
  TESSERA_ASSIGN_OR_RETURN(const PrivateState state, private_state());
  options_.store->Save(number, folder_step, cursor, state);
  return absl::OkStatus();
}

}  // namespace tessera
