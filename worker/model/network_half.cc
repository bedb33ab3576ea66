// A network that is one half of a model.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "worker/model/network.h"

namespace tessera {

absl::Status Network::AllocateHalf() {
  Memory& memory = backend_.memory();
  if (is_front()) {
    const int64_t floats = options_.batch_max * shape().outputs();
    TESSERA_ASSIGN_OR_RETURN(activations_view_,
                             HostView<float>::Create(memory, values_.back(), floats));
    TESSERA_ASSIGN_OR_RETURN(gradient_view_,
                             HostView<float>::Create(memory, flow_[0].data(), floats));
  }
  if (is_back()) {
    const int64_t floats = options_.batch_max * shape().inputs();
    TESSERA_ASSIGN_OR_RETURN(input_gradient_, Buffer<float>::Create(memory, floats));
    TESSERA_ASSIGN_OR_RETURN(input_gradient_view_,
                             HostView<float>::Create(memory, input_gradient_.data(), floats));
    TESSERA_ASSIGN_OR_RETURN(added_, Buffer<float>::Create(memory, plan_.stage_floats_max));
  }
  return absl::OkStatus();
}

float* Network::AddedAt(const StagePlan& plan, int parameter) const {
  const std::vector<int64_t>& offsets = plan_.parameter_offsets;
  return added_.data() + offsets[parameter] - offsets[plan.weight];
}

// Apart from the product, which would go on from the sum that is there: its roundings would be other ones
// (and oneDNN's adding products take longer than both).
void Network::AddGradients(const StagePlan& plan) {
  for (const int parameter : {plan.weight, plan.bias}) {
    if (parameter < 0) continue;
    backend_.vector().Axpy(shape().parameters[parameter].size(), 1.0f, AddedAt(plan, parameter),
                           GradientAt(parameter));
  }
}

absl::Status Network::CheckPart(const Batch& batch) const {
  if (!is_back() && (batch.adds || batch.more)) {
    return absl::InvalidArgumentError(
        "batch: its gradients are added to others, want that of a model's back only");
  }
  if (batch.adds && input_gradient_rows_ == 0) {
    return absl::InvalidArgumentError("batch: it adds, and there was none before it");
  }
  if (plan_.part == ModelPart::kWhole || (batch.is_first() && batch.is_last())) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("batch: rows are ", batch.rows,
                                                 " of a minibatch of ", batch.minibatch_rows,
                                                 ", want all of them for a half of a model"));
}

absl::Status Network::CheckWhole() const {
  if (plan_.part == ModelPart::kWhole) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "network: a half of a model only trains, want the whole for evaluation");
}

absl::Status Network::CheckHasLoss() const {
  if (!is_front()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "network: a model's front has no loss, want BeginForward and FinishStep");
}

absl::Status Network::WaitForFront() {
  if (!front_known_.has_value()) return absl::OkStatus();
  return backend_.Wait(*std::exchange(front_known_, std::nullopt));
}

absl::Status Network::BeginForward(const Batch& batch, const StepKey& key) {
  if (!is_front()) {
    return absl::FailedPreconditionError("network: it is not a model's front, want BeginStep");
  }
  TESSERA_ASSIGN_OR_RETURN(const Batch staged, CheckAndStage(batch));
  return QueueFront(staged, key);
}

absl::Status Network::BeginForwardOnNext(const StepKey& key) {
  if (!is_front() || !holds_next()) {
    return absl::FailedPreconditionError(
        "network: it is not a model's front, or no batch was sent ahead");
  }
  return QueueFront(std::exchange(next_, Batch()), key);
}

absl::Status Network::QueueFront(const Batch& staged, const StepKey& key) {
  // The activations of a dropped step may still be on their way to where these will come.
  front_.reset();
  TESSERA_RETURN_IF_ERROR(WaitForFront());
  front_ = FormOf(staged, key);
  Repeated* const repeated = RepeatedOn(*front_);
  const auto forward = [&] { QueueForward(*front_); };
  if (repeated != nullptr) {
    repeated->forward->Run(forward);
  } else {
    forward();
  }
  activations_view_.Fetch(0, staged.rows * shape().outputs());
  front_known_ = backend_.Mark();
  return absl::OkStatus();
}

absl::StatusOr<absl::Span<const float>> Network::Activations() {
  if (!front_.has_value()) {
    return absl::FailedPreconditionError("network: there are no activations, want BeginForward");
  }
  TESSERA_RETURN_IF_ERROR(WaitForFront());
  return absl::MakeConstSpan(activations_view_.data(), front_->batch.rows * shape().outputs());
}

absl::Status Network::FinishStep(absl::Span<const float> gradient, GradientWork* work) {
  if (!front_.has_value()) {
    return absl::FailedPreconditionError("network: there is no step to finish, want BeginForward");
  }
  const int64_t floats = front_->batch.rows * shape().outputs();
  if (static_cast<int64_t>(gradient.size()) != floats) {
    return absl::InvalidArgumentError(
        absl::StrCat("gradient: it has ", gradient.size(), " values, want ", floats));
  }
  TESSERA_CHECK(work == nullptr || takes_work());
  // Until the gradient of the step before has left the place of this one.
  TESSERA_RETURN_IF_ERROR(WaitForFront());
  std::copy(gradient.begin(), gradient.end(), gradient_view_.data());
  gradient_view_.Send(0, floats);
  const StepForm form = *std::exchange(front_, std::nullopt);
  Repeated* const repeated = RepeatedOn(form);
  const auto backward = [&] { Backward(form.batch, work); };
  if (repeated != nullptr) {
    BackwardOf(repeated, work)->Run(backward);
  } else {
    backward();
  }
  return absl::OkStatus();
}

absl::StatusOr<absl::Span<const float>> Network::InputGradient() {
  if (input_gradient_rows_ == 0) {
    return absl::FailedPreconditionError(
        "network: there is no gradient of inputs, want a step of a model's back");
  }
  const int64_t floats = input_gradient_rows_ * shape().inputs();
  input_gradient_view_.Fetch(0, floats);
  TESSERA_RETURN_IF_ERROR(backend_.Wait(backend_.Mark()));
  return absl::MakeConstSpan(input_gradient_view_.data(), floats);
}

void Network::FinishBack() {
  if (!left_.has_value()) return;
  const auto [batch, work] = *std::exchange(left_, std::nullopt);
  const StagePlan& plan = plan_.stages[0];
  float* const no_dx = nullptr;
  stages_[0]->Backward(batch.rows, {&batch.inputs, 1}, values_[1], first_layer_dy_,
                       GradientsOf(plan, batch), {&no_dx, 1});
  if (batch.adds) AddGradients(plan);
  FollowGradients(plan, batch, work);
}

}  // namespace tessera
