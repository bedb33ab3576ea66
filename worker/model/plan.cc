#include "worker/model/plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/layout/image_layers.h"
#include "kernels/bf16.h"
#include "kernels/loss.h"
#include "worker/model/step_numbers.h"

namespace tessera {
namespace {

constexpr int64_t kFloatsPerCacheLine = 16;
constexpr int64_t kFloatBytes = sizeof(float);
constexpr int64_t kBf16Bytes = sizeof(Bf16);

// Between [channels, height, width] and [height, width, channels], unless that is the same.
void AppendTranspose(const Image& image, bool to_channels_last, std::vector<StagePlan>* stages) {
  if (image.channels == 1 || image.positions() == 1) return;
  StagePlan stage;
  stage.kind = StagePlan::Kind::kTranspose;
  stage.inputs = image.size();
  stage.outputs = image.size();
  stage.map = {image, image, {}};
  stage.transposes = {image.channels, image.positions()};
  if (!to_channels_last) stage.transposes = {image.positions(), image.channels};
  stages->push_back(stage);
}

// What follows from the shape and the stages.
void PlaceParameters(NetworkPlan* plan) {
  const std::vector<ParameterSpec>& parameters = plan->shape.parameters;
  for (StagePlan& stage : plan->stages) {
    stage.wants_input_gradient = plan->parameter_floats > 0 || plan->part == ModelPart::kBack;
    stage.weight = -1;
    stage.bias = -1;
    const int64_t before = plan->parameter_floats;
    for (int p = 0; p < static_cast<int>(parameters.size()); ++p) {
      if (parameters[p].layer != stage.layer) continue;
      // A layer's weight comes before its bias.
      (stage.weight < 0 ? stage.weight : stage.bias) = p;
      TESSERA_CHECK(static_cast<int>(plan->parameter_offsets.size()) == p);
      plan->parameter_offsets.push_back(plan->parameter_floats);
      plan->parameter_floats += (parameters[p].size() + kFloatsPerCacheLine - 1) /
                                kFloatsPerCacheLine * kFloatsPerCacheLine;
    }
    plan->stage_floats_max = std::max(plan->stage_floats_max, plan->parameter_floats - before);
    plan->width_max = std::max(plan->width_max, stage.outputs);
    plan->constants += stage.constants();
  }
}

}  // namespace

absl::StatusOr<Precision> PrecisionOf(absl::string_view name) {
  if (name == "f32") return Precision::kF32;
  if (name == "tf32") return Precision::kTf32;
  if (name == "bf16") return Precision::kBf16;
  return absl::InvalidArgumentError(
      absl::StrCat("train.precision: got \"", name, "\", want f32, tf32 or bf16"));
}

absl::StatusOr<NetworkPlan> PlanOf(const v1::Model& model) {
  NetworkPlan plan;
  TESSERA_ASSIGN_OR_RETURN(plan.shape, ShapeOf(model));
  using Kind = StagePlan::Kind;
  bool channels_last = false;
  if (ReadsImages(model)) {
    AppendTranspose(plan.shape.images[0], true, &plan.stages);
    channels_last = true;
  }
  const auto leave_images = [&](const Image& image) {
    if (channels_last) AppendTranspose(image, false, &plan.stages);
    channels_last = false;
  };
  for (int i = 0; i < model.layers_size(); ++i) {
    const v1::Layer& layer = model.layers(i);
    StagePlan stage;
    stage.layer = i;
    stage.inputs = plan.shape.widths[i];
    stage.outputs = plan.shape.widths[i + 1];
    stage.map = {plan.shape.images[i], plan.shape.images[i + 1], {}};
    switch (layer.kind_case()) {
      case v1::Layer::kLinear:
        leave_images(stage.map.from);
        stage.kind = Kind::kLinear;
        break;
      case v1::Layer::kConv2D:
      case v1::Layer::kMaxPool:
      case v1::Layer::kAvgPool: {
        TESSERA_ASSIGN_OR_RETURN(stage.map, MapOf(layer, stage.map.from));
        stage.kind = layer.has_conv2d()     ? Kind::kConvolution
                     : layer.has_max_pool() ? Kind::kMaxPool
                                            : Kind::kAveragePool;
        break;
      }
      case v1::Layer::kBatchNorm:
        stage.kind = Kind::kBatchNorm;
        stage.epsilon = layer.batch_norm().epsilon();
        break;
      case v1::Layer::kRelu:
        if (!plan.stages.empty() && plan.stages.back().kind == Kind::kBatchNorm &&
            !plan.stages.back().relu) {
          plan.stages.back().relu = true;
          continue;
        }
        stage.kind = Kind::kRelu;
        break;
      case v1::Layer::kDropout:
        stage.kind = Kind::kDropout;
        stage.probability = layer.dropout().probability();
        break;
      default:
        return absl::InvalidArgumentError(
            absl::StrCat("model.layers[", i,
                         "]: no kind is set, want linear, conv2d, max_pool, avg_pool, batch_norm, "
                         "relu or dropout"));
    }
    plan.stages.push_back(stage);
  }
  leave_images(plan.shape.images.back());

  PlaceParameters(&plan);
  return plan;
}

absl::StatusOr<NetworkPlan> HalfOf(const NetworkPlan& whole, const LayerRange& layers) {
  const int count = static_cast<int>(whole.shape.widths.size()) - 1;
  const bool is_front = layers.begin == 0;
  if (is_front && layers.end == count && whole.part == ModelPart::kWhole) return whole;
  const int cut = is_front ? layers.end : layers.begin;
  // A transpose goes with the stages before it.
  const auto at_cut = std::find_if(whole.stages.begin(), whole.stages.end(),
                                   [&](const StagePlan& stage) { return stage.layer >= cut; });
  const bool cuts = (is_front || layers.end == count) && at_cut != whole.stages.end() &&
                    at_cut->layer == cut && at_cut->kind == StagePlan::Kind::kLinear;
  NetworkPlan half;
  half.part = is_front ? ModelPart::kFront : ModelPart::kBack;
  if (cuts && whole.part == ModelPart::kWhole) {
    const std::vector<ParameterSpec>& all = whole.shape.parameters;
    const auto first_behind = std::find_if(
        all.begin(), all.end(), [&](const ParameterSpec& spec) { return spec.layer >= cut; });
    if (is_front) {
      half.stages.assign(whole.stages.begin(), at_cut);
      half.shape.parameters.assign(all.begin(), first_behind);
    } else {
      half.stages.assign(at_cut, whole.stages.end());
      half.shape.parameters.assign(first_behind, all.end());
      half.parameter_begin = static_cast<int>(first_behind - all.begin());
    }
  }
  if (half.shape.parameters.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "network: layers are [", layers.begin, ", ", layers.end, ") of ", count,
        ", want those in front of a linear layer, with parameters, or those from one on"));
  }
  for (const ParameterSpec& spec : half.shape.parameters) half.shape.size += spec.size();
  const ModelShape& shape = whole.shape;
  half.shape.widths.assign(shape.widths.begin() + layers.begin,
                           shape.widths.begin() + layers.end + 1);
  half.shape.images.assign(shape.images.begin() + layers.begin,
                           shape.images.begin() + layers.end + 1);
  PlaceParameters(&half);
  return half;
}

CalibrationWidths CalibrationWidthsOf(const NetworkPlan& plan, bool copies_inputs,
                                      bool sparse_input) {
  int64_t widths[2] = {copies_inputs ? plan.shape.inputs() : 0, 0};
  int at = 0;
  int64_t constants = 0;
  for (const StagePlan& stage : plan.stages) {
    // Behind the last batch norm nothing is calibrated.
    if (constants == plan.constants) break;
    const bool is_sparse = sparse_input && &stage == &plan.stages.front();
    if (!stage.is_elementwise()) {
      if (!is_sparse) at = 1 - at;
      widths[at] = std::max(widths[at], stage.outputs);
    }
    constants += stage.constants();
  }
  return {widths[0], widths[1]};
}

int64_t GradientsBegin(const NetworkPlan& plan, bool steps_first_weight) {
  if (!steps_first_weight) return 0;
  return plan.parameter_offsets.size() > 1 ? plan.parameter_offsets[1] : plan.parameter_floats;
}

NetworkMemory MemoryNeeded(const NetworkPlan& plan, int64_t batch_max, Precision precision,
                           int64_t calibration_rows, bool sparse_input, bool steps_first_weight,
                           int64_t minibatch_max) {
  int64_t floats = plan.parameter_floats + plan.constants + 2 * batch_max * plan.width_max;
  // A batch norm holds the minibatch's mean and 1/sigma whatever it is for.
  const int64_t evaluation_floats = floats + plan.constants;
  floats += plan.parameter_floats - GradientsBegin(plan, steps_first_weight);
  if (steps_first_weight && minibatch_max > batch_max) {
    floats += minibatch_max * plan.stages[0].outputs;
  }
  int64_t bf16 = 0;
  int64_t outputs_max = 0;
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const StagePlan& stage = plan.stages[i];
    // The batch itself is the caller's and is never written.
    if (i == 0 || !stage.forward_in_place()) floats += batch_max * stage.outputs;
    floats += stage.constants();  // The minibatch's mean and 1/sigma.
    if (stage.is_product()) {
      const bool in_f32 = i == 0 && sparse_input;
      if (!in_f32) bf16 += batch_max * stage.inputs + stage.weights();
      outputs_max = std::max(outputs_max, stage.outputs);
    }
  }
  if (plan.part == ModelPart::kBack) {
    floats += batch_max * plan.shape.inputs() + plan.stage_floats_max;
  }
  bf16 += batch_max * outputs_max;
  NetworkMemory memory;
  memory.evaluation_bytes =
      evaluation_floats * kFloatBytes + static_cast<int64_t>(sizeof(LossSums));
  memory.held_bytes = floats * kFloatBytes +
                      static_cast<int64_t>(kStepsBegunMax * sizeof(LossSums) + sizeof(StepNumbers));
  if (precision == Precision::kBf16) memory.held_bytes += bf16 * kBf16Bytes;
  if (plan.constants > 0 && plan.part == ModelPart::kWhole) {
    const bool copies_inputs = plan.stages.front().is_elementwise();
    const CalibrationWidths widths = CalibrationWidthsOf(plan, copies_inputs, sparse_input);
    memory.calibration_bytes = calibration_rows * (widths.first + widths.second) * kFloatBytes;
  }
  return memory;
}

}  // namespace tessera
