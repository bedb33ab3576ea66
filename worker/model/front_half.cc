#include "worker/model/front_half.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace tessera {

absl::StatusOr<std::unique_ptr<FrontHalf>> FrontHalf::Create(const NetworkPlan& plan,
                                                             const NetworkOptions& options,
                                                             NetworkInput& input,
                                                             TrainingPass& pass, Backend& backend) {
  auto made = std::unique_ptr<FrontHalf>(new FrontHalf(plan, input, pass, backend));
  if (!made->is_front()) return made;
  const int64_t floats = options.batch_max * plan.shape.outputs();
  TESSERA_ASSIGN_OR_RETURN(made->activations_view_,
                           HostView<float>::Create(backend.memory(), pass.output(), floats));
  TESSERA_ASSIGN_OR_RETURN(
      made->gradient_view_,
      HostView<float>::Create(backend.memory(), pass.output_gradient(), floats));
  return made;
}

absl::Status FrontHalf::Wait() {
  if (!known_.has_value()) return absl::OkStatus();
  return backend_.Wait(*std::exchange(known_, std::nullopt));
}

absl::Status FrontHalf::BeginForward(const Batch& batch, const StepKey& key) {
  if (!is_front()) {
    return absl::FailedPreconditionError("network: it is not a model's front, want BeginStep");
  }
  TESSERA_ASSIGN_OR_RETURN(const Batch staged, input_.Take(batch));
  return Queue(staged, key);
}

absl::Status FrontHalf::BeginForwardOnNext(const StepKey& key) {
  if (!is_front() || !input_.holds_next()) {
    return absl::FailedPreconditionError(
        "network: it is not a model's front, or no batch was sent ahead");
  }
  return Queue(input_.TakeNext(), key);
}

absl::Status FrontHalf::Queue(const Batch& staged, const StepKey& key) {
  // The activations of a dropped step may still be on their way to where these will come.
  step_.reset();
  TESSERA_RETURN_IF_ERROR(Wait());
  step_ = pass_.Begin(staged, key, /*sums_place=*/0);
  pass_.Forward(*step_);
  // The copy begins when the forward pass is done, and the next step's kernels need not wait for it.
  activations_view_.Fetch(0, staged.rows * plan_.shape.outputs());
  known_ = backend_.Mark();
  return absl::OkStatus();
}

absl::StatusOr<absl::Span<const float>> FrontHalf::Activations() {
  if (!step_.has_value()) {
    return absl::FailedPreconditionError("network: there are no activations, want BeginForward");
  }
  TESSERA_RETURN_IF_ERROR(Wait());
  return absl::MakeConstSpan(activations_view_.data(), step_->batch.rows * plan_.shape.outputs());
}

absl::Status FrontHalf::FinishStep(absl::Span<const float> gradient, GradientWork* work) {
  if (!step_.has_value()) {
    return absl::FailedPreconditionError("network: there is no step to finish, want BeginForward");
  }
  const int64_t floats = step_->batch.rows * plan_.shape.outputs();
  if (static_cast<int64_t>(gradient.size()) != floats) {
    return absl::InvalidArgumentError(
        absl::StrCat("gradient: it has ", gradient.size(), " values, want ", floats));
  }
  TESSERA_CHECK(work == nullptr || input_.wants_next());
  // Waits until the gradient of the step before has left the place of this one.
  TESSERA_RETURN_IF_ERROR(Wait());
  // Only memory of AllocateHost may be sent from, which the view has.
  std::copy(gradient.begin(), gradient.end(), gradient_view_.data());
  gradient_view_.Send(0, floats);
  pass_.Backward(*std::exchange(step_, std::nullopt), work);
  return absl::OkStatus();
}

}  // namespace tessera
