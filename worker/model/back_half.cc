#include "worker/model/back_half.h"

#include "common/base/check.h"

namespace tessera {

absl::StatusOr<std::unique_ptr<BackHalf>> BackHalf::Create(const NetworkPlan& plan,
                                                           const NetworkOptions& options,
                                                           TrainingPass& pass, Backend& backend) {
  auto made = std::unique_ptr<BackHalf>(new BackHalf(plan, pass, backend));
  if (plan.part != ModelPart::kBack) return made;
  // Room for a whole batch from the beginning: steps allocate nothing.
  TESSERA_ASSIGN_OR_RETURN(made->view_,
                           HostView<float>::Create(backend.memory(), pass.input_gradient(),
                                                   options.batch_max * plan.shape.inputs()));
  return made;
}

absl::StatusOr<absl::Span<const float>> BackHalf::InputGradient() {
  if (plan_.part != ModelPart::kBack || pass_.rows_begun() == 0) {
    return absl::FailedPreconditionError(
        "network: there is no gradient of inputs, want a step of a model's back");
  }
  const int64_t floats = pass_.rows_begun() * plan_.shape.inputs();
  view_.Fetch(0, floats);
  // Waits for what is queued by now. The gradients of the first stage, which the front does not wait for, are queued
  // later (TrainingPass::FinishBackward).
  TESSERA_RETURN_IF_ERROR(backend_.Wait(backend_.Mark()));
  return absl::MakeConstSpan(view_.data(), floats);
}

}  // namespace tessera
