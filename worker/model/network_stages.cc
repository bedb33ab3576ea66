#include "worker/model/network_stages.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace tessera {
namespace {

StageParameters ParametersOf(const StagePlan& plan, const NetworkArrays& arrays) {
  StageParameters parameters;
  if (plan.factor() >= 0) parameters.weight = arrays.device_parameter(plan.factor()).data();
  if (plan.bias >= 0) parameters.bias = arrays.device_parameter(plan.bias).data();
  return parameters;
}

}  // namespace

absl::StatusOr<std::unique_ptr<NetworkStages>> NetworkStages::Create(const NetworkPlan& plan,
                                                                     const NetworkOptions& options,
                                                                     const NetworkArrays& arrays,
                                                                     Backend& backend) {
  Memory& memory = backend.memory();
  const bool trains = options.trains();
  auto made =
      std::unique_ptr<NetworkStages>(new NetworkStages(BuffersOf(plan, trains), options.batch_max));
  TESSERA_ASSIGN_OR_RETURN(
      made->memory_, Buffer<float>::Create(memory, options.batch_max * made->buffers_.floats));
  TESSERA_ASSIGN_OR_RETURN(made->sums_,
                           Buffer<LossSums>::Create(memory, trains ? kStepsBegunMax : 1));
  TESSERA_ASSIGN_OR_RETURN(
      made->sums_view_, HostView<LossSums>::Create(memory, made->sums_.data(), made->sums_.size()));
  StageOptions stage_options;
  stage_options.precision = options.precision;
  stage_options.batch_max = options.batch_max;
  stage_options.trains = trains;
  // One place for the numbers of the step under way, which kernels read when they run.
  if (trains) {
    TESSERA_ASSIGN_OR_RETURN(made->numbers_, Buffer<StepNumbers>::Create(memory, 1));
    stage_options.dropout = &made->numbers_.data()->dropout;
  }
  // Stages take turns with it, in the backward pass.
  if (trains && options.precision == Precision::kBf16) {
    int64_t outputs_max = 0;
    for (const StagePlan& stage : plan.stages) {
      if (stage.kind->is_product) outputs_max = std::max(outputs_max, stage.outputs);
    }
    TESSERA_ASSIGN_OR_RETURN(made->dy_bf16_,
                             Buffer<Bf16>::Create(memory, options.batch_max * outputs_max));
    stage_options.dy_bf16 = made->dy_bf16_.data();
  }
  made->rounded_.resize(plan.shape.parameters.size(), nullptr);
  for (const StagePlan& stage : plan.stages) {
    stage_options.parameters = ParametersOf(stage, arrays);
    if (made->stages_.empty() && options.sparse_input) {
      made->sparse_first_ =
          std::make_unique<SparseLinearStage>(stage, stage_options.parameters, backend);
      // Its place stays empty, so that stages have the plan's indices.
      made->stages_.push_back(nullptr);
      continue;
    }
    TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<Stage> one,
                             stage.kind->make(stage, stage_options, backend));
    // The optimizer writes there, so that products need not round weights anew in each step.
    if (stage.factor() >= 0 && one->rounded_weight() != nullptr) {
      made->rounded_[stage.factor()] = one->rounded_weight();
    }
    made->stages_.push_back(std::move(one));
  }
  return made;
}

std::vector<float*> NetworkStages::AddressesOf(const std::vector<int>& buffers) const {
  std::vector<float*> addresses;
  for (const int i : buffers) addresses.push_back(buffer(i));
  return addresses;
}

}  // namespace tessera
