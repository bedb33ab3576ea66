#include "worker/model/training_steps.h"

#include "common/base/check.h"

namespace tessera {

// The host waits for the marks of all steps that are begun.
static_assert(kStepsBegunMax <= Backend::kMoments);

absl::Status TrainingSteps::CheckHasLoss() const {
  if (plan_.part != ModelPart::kFront) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "network: a model's front has no loss, want BeginForward and FinishStep");
}

absl::StatusOr<LossAndCount> TrainingSteps::TrainStep(const Batch& batch, const StepKey& key) {
  TESSERA_RETURN_IF_ERROR(BeginStep(batch, key));
  return EndStep();
}

absl::Status TrainingSteps::BeginStep(const Batch& batch, const StepKey& key, GradientWork* work) {
  TESSERA_RETURN_IF_ERROR(CheckHasLoss());
  TESSERA_ASSIGN_OR_RETURN(const Batch staged, input_.Take(batch));
  Queue(staged, key, work);
  return absl::OkStatus();
}

absl::Status TrainingSteps::BeginStepOnNext(const StepKey& key, GradientWork* work) {
  TESSERA_CHECK(input_.holds_next());
  TESSERA_RETURN_IF_ERROR(CheckHasLoss());
  Queue(input_.TakeNext(), key, work);
  return absl::OkStatus();
}

void TrainingSteps::Queue(const Batch& staged, const StepKey& key, GradientWork* work) {
  TESSERA_CHECK(begun() < kStepsBegunMax);
  TESSERA_CHECK(work == nullptr || takes_work());
  // Pieces of a minibatch come in the order of its rows, since their gradients add up in that order.
  TESSERA_CHECK(staged.is_first() || staged.first_row == rows_done_);
  rows_done_ = staged.first_row + staged.rows;
  TESSERA_CHECK(rows_done_ <= staged.whole_rows());
  if (staged.is_first()) sums_place_ = (sums_place_ + 1) % kStepsBegunMax;
  const StepForm form = pass_.Begin(staged, key, sums_place_);
  pass_.Forward(form);
  // In front of the backward pass, so that the loss is known while that is under way.
  if (staged.is_last()) stages_.sums_view().Fetch(sums_place_, 1);
  begun_.push_back(
      {staged.whole_rows() * plan_.shape.places(), staged.is_last(), sums_place_, backend_.Mark()});
  pass_.Backward(form, work);
}

absl::StatusOr<LossAndCount> TrainingSteps::EndStep() {
  TESSERA_ASSIGN_OR_RETURN(const std::optional<LossAndCount> ended, EndPiece());
  TESSERA_CHECK(ended.has_value());
  return *ended;
}

absl::StatusOr<std::optional<LossAndCount>> TrainingSteps::EndPiece() {
  TESSERA_CHECK(!begun_.empty());
  const Begun first = begun_.front();
  // Taken out in any case: a step that failed is over.
  begun_.erase(begun_.begin());
  // Waits until the loss is known, and the place of the batch before is free; not until the backward pass is done.
  TESSERA_RETURN_IF_ERROR(backend_.Wait(first.known));
  if (!first.is_last) return std::nullopt;
  const LossSums& sums = stages_.sums_view().data()[first.sums_place];
  return LossAndCount{sums.loss / static_cast<double>(first.predictions), sums.correct,
                      first.predictions};
}

}  // namespace tessera
