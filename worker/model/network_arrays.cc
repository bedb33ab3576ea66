#include "worker/model/network_arrays.h"

#include "common/base/check.h"

namespace tessera {

absl::StatusOr<std::unique_ptr<NetworkArrays>> NetworkArrays::Create(const NetworkPlan& plan,
                                                                     const NetworkOptions& options,
                                                                     Memory& memory) {
  auto arrays = std::unique_ptr<NetworkArrays>(new NetworkArrays(plan));
  TESSERA_ASSIGN_OR_RETURN(arrays->parameters_,
                           Buffer<float>::Create(memory, plan.parameter_floats));
  // Where the host can address the device's memory the view is that memory, and costs nothing.
  TESSERA_ASSIGN_OR_RETURN(
      arrays->parameters_view_,
      HostView<float>::Create(memory, arrays->parameters_.data(), plan.parameter_floats));
  if (!options.trains()) return arrays;
  // A first weight that is stepped without a gradient has no place among the gradients.
  arrays->gradients_begin_ = GradientsBegin(plan, options.steps_first_weight);
  Buffer<float>& gradients = arrays->gradients_;
  TESSERA_ASSIGN_OR_RETURN(
      gradients, Buffer<float>::Create(memory, plan.parameter_floats - arrays->gradients_begin_));
  if (options.fetches_gradients || memory.host_addressable()) {
    TESSERA_ASSIGN_OR_RETURN(arrays->gradients_view_,
                             HostView<float>::Create(memory, gradients.data(), gradients.size()));
  }
  return arrays;
}

float* NetworkArrays::GradientAt(int i) const {
  const int64_t offset = plan_.parameter_offsets[i] - gradients_begin_;
  return offset < 0 ? nullptr : gradients_.data() + offset;
}

absl::Span<float> NetworkArrays::parameter(int i) {
  return {parameters_view_.data() + plan_.parameter_offsets[i], static_cast<size_t>(size(i))};
}

absl::Span<const float> NetworkArrays::gradient(int i) const {
  const int64_t offset = plan_.parameter_offsets[i] - gradients_begin_;
  if (offset < 0 || !shows_gradients()) return {};
  return {gradients_view_.data() + offset, static_cast<size_t>(size(i))};
}

absl::Span<float> NetworkArrays::parameters() {
  return {parameters_view_.data(), static_cast<size_t>(parameters_.size())};
}

absl::Span<const float> NetworkArrays::gradients() const {
  return {gradients_view_.data(), static_cast<size_t>(gradients_view_.size())};
}

absl::Span<float> NetworkArrays::device_parameter(int i) const {
  return {parameters_.data() + plan_.parameter_offsets[i], static_cast<size_t>(size(i))};
}

absl::Span<const float> NetworkArrays::device_gradient(int i) const {
  return {GradientAt(i), static_cast<size_t>(size(i))};
}

void NetworkArrays::SendParameter(int i) {
  parameters_view_.Send(plan_.parameter_offsets[i], size(i));
}

void NetworkArrays::FetchParameter(int i) {
  parameters_view_.Fetch(plan_.parameter_offsets[i], size(i));
}

void NetworkArrays::FetchGradients() {
  if (shows_gradients()) gradients_view_.Fetch();
}

void NetworkArrays::FetchGradient(int i) {
  if (!shows_gradients() || GradientAt(i) == nullptr) return;
  gradients_view_.Fetch(plan_.parameter_offsets[i] - gradients_begin_, size(i));
}

void NetworkArrays::SetInitialValues(uint64_t seed) {
  for (size_t i = 0; i < plan_.shape.parameters.size(); ++i) {
    const ParameterSpec& spec = plan_.shape.parameters[i];
    // Each parameter is drawn by its number in the whole model: halves of a model begin with the values of the whole.
    FillInitialRows(spec, plan_.parameter_begin + static_cast<int>(i), seed, 0, spec.rows,
                    parameter(static_cast<int>(i)).data());
  }
  SendParameters();
}

}  // namespace tessera
