#include "worker/model/network_evaluation.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "worker/model/calibration.h"
#include "worker/model/model_loss.h"

namespace tessera {

absl::StatusOr<std::unique_ptr<NetworkEvaluation>> NetworkEvaluation::Create(
    const v1::Model& model, const NetworkPlan& plan, const NetworkOptions& options,
    NetworkInput& input, NetworkStages& stages, const TrainingSteps* steps, Backend& backend) {
  // The buffer may not fit the device, which a constructor could not report.
  auto made = std::unique_ptr<NetworkEvaluation>(
      new NetworkEvaluation(model, plan, options, input, stages, steps, backend));
  TESSERA_ASSIGN_OR_RETURN(made->constants_,
                           Buffer<float>::Create(backend.memory(), plan.constants));
  return made;
}

NetworkEvaluation::NetworkEvaluation(const v1::Model& model, const NetworkPlan& plan,
                                     const NetworkOptions& options, NetworkInput& input,
                                     NetworkStages& stages, const TrainingSteps* steps,
                                     Backend& backend)
    : model_(model),
      plan_(plan),
      options_(options),
      input_(input),
      stages_(stages),
      steps_(steps),
      backend_(backend),
      activations_(plan.stages, stages.AddressesOf(stages.buffers().evaluated)) {}

// Half a model has either no inputs or no scores.
absl::Status NetworkEvaluation::CheckWhole() const {
  if (plan_.part == ModelPart::kWhole) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "network: a half of a model only trains, want the whole for evaluation");
}

absl::Status NetworkEvaluation::CheckConstants(absl::string_view what,
                                               absl::Span<const float> constants) const {
  if (static_cast<int64_t>(constants.size()) == plan_.constants) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": constants are ", constants.size(), " values, want ", plan_.constants));
}

const float* NetworkEvaluation::Forward(const Batch& staged, absl::Span<const float> constants) {
  // Constants are sent anew each time: they belong to the evaluated parameters, not to the network.
  backend_.memory().CopyIn(constants.data(), constants_.bytes(), constants_.data());
  const float* own = constants_.data();
  // A stage finds its constants behind those of the stages before it.
  const int count = static_cast<int>(plan_.stages.size());
  for (int i = 0; i < count; ++i) {
    if (plan_.stages[i].is_off_in_evaluation()) continue;
    float* const y = activations_.output(i);
    // Sparse rows never become dense: the first layer reads their entries alone.
    if (i == 0 && options_.sparse_input) {
      stages_.sparse_first()->Forward(staged.rows, staged.sparse, y);
    } else {
      stages_.stage(i).Evaluate(staged.rows, activations_.inputs(i, staged.inputs), own, y);
    }
    own += plan_.stages[i].constants();
  }
  const float* const last = activations_.output(count - 1);
  // A model whose layers are all off in evaluation predicts what it reads.
  return last == nullptr ? staged.inputs : last;
}

absl::Status NetworkEvaluation::Predict(const Batch& batch, absl::Span<const float> constants,
                                        absl::Span<float> scores) {
  // Evaluations share their buffers with steps of training, so that none may be under way.
  TESSERA_CHECK(steps_ == nullptr || steps_->begun() == 0);
  TESSERA_RETURN_IF_ERROR(CheckWhole());
  TESSERA_RETURN_IF_ERROR(CheckConstants("predict", constants));
  const int64_t values = batch.rows * plan_.shape.widths.back();
  if (static_cast<int64_t>(scores.size()) != values) {
    return absl::InvalidArgumentError(absl::StrCat("predict: room is for ", scores.size(),
                                                   " scores, want ", values, ", ",
                                                   plan_.shape.widths.back(), " for each row"));
  }
  TESSERA_ASSIGN_OR_RETURN(const Batch staged, input_.TakeInputs(batch));
  const float* const last = Forward(staged, constants);
  // The copy waits for the kernels, and Finish reports what failed among them.
  backend_.memory().CopyOut(last, values * static_cast<int64_t>(sizeof(float)), scores.data());
  return backend_.Finish();
}

absl::StatusOr<Scores> NetworkEvaluation::Score(const Batch& batch,
                                                absl::Span<const float> constants) {
  TESSERA_CHECK(steps_ == nullptr || steps_->begun() == 0);
  TESSERA_RETURN_IF_ERROR(CheckWhole());
  TESSERA_RETURN_IF_ERROR(CheckConstants("score", constants));
  TESSERA_ASSIGN_OR_RETURN(const Batch staged, input_.Take(batch));
  const float* const last = Forward(staged, constants);
  // Without a gradient buffer the loss computes sums only.
  ComputeLoss(model_, plan_.shape, staged, last, nullptr, stages_.sums(), backend_);
  stages_.sums_view().Fetch(0, 1);
  TESSERA_RETURN_IF_ERROR(backend_.Finish());
  // A row of a language model has one score per place.
  return ScoresOf(*stages_.sums_view().data(), batch.rows * plan_.shape.places());
}

absl::StatusOr<std::vector<float>> NetworkEvaluation::Calibrate(ExampleSource* sample) {
  TESSERA_RETURN_IF_ERROR(CheckWhole());
  // A model without batch norm has nothing to calibrate.
  if (plan_.constants == 0) return std::vector<float>();
  if (sample->count() == 0) {
    return absl::InvalidArgumentError("calibration: the sample is empty, want at least one row");
  }
  Calibration calibration(plan_, options_, input_, stages_, constants_.data(), backend_);
  // Constants are found in the place where Forward reads them, and are brought to the host once.
  TESSERA_RETURN_IF_ERROR(calibration.Run(sample));
  std::vector<float> result(plan_.constants);
  backend_.memory().CopyOut(constants_.data(), constants_.bytes(), result.data());
  TESSERA_RETURN_IF_ERROR(backend_.Finish());
  return result;
}

}  // namespace tessera
