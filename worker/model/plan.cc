#include "worker/model/plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/layout/layers/layer_kinds.h"
#include "kernels/bf16.h"
#include "kernels/loss.h"
#include "worker/model/image_stages.h"
#include "worker/model/stage_kinds.h"
#include "worker/model/step_numbers.h"

namespace tessera {
namespace {

constexpr int64_t kFloatsPerCacheLine = 16;
constexpr int64_t kFloatBytes = sizeof(float);
constexpr int64_t kBf16Bytes = sizeof(Bf16);

// Appends a stage that reads the last one.
void Append(StagePlan stage, std::vector<StagePlan>* stages) {
  stage.reads = {static_cast<int>(stages->size()) - 1};
  static_assert(kNetworkInput == -1, "what the first stage reads");
  stages->push_back(std::move(stage));
}

// Between [channels, height, width] and [height, width, channels], unless that is the same.
void AppendTranspose(const Image& image, const StageKind& kind, std::vector<StagePlan>* stages) {
  if (image.channels == 1 || image.positions() == 1) return;
  StagePlan stage;
  stage.kind = &kind;
  stage.inputs = image.size();
  stage.outputs = image.size();
  stage.map = {image, image, {}};
  Append(std::move(stage), stages);
}

// Whether `layer` becomes part of the stage before it.
bool Joins(const v1::Layer& layer, std::vector<StagePlan>* stages) {
  if (stages->empty()) return false;
  StagePlan& before = stages->back();
  if (before.is_joined || before.kind->joins != layer.kind_case()) return false;
  before.is_joined = true;
  return true;
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
      if (stage.weight == p) stage.weight_size = parameters[p].size();
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

absl::StatusOr<NetworkPlan> PlanOf(const v1::Model& model) {
  NetworkPlan plan;
  TESSERA_ASSIGN_OR_RETURN(plan.shape, ShapeOf(model));
  bool channels_last = false;
  if (ReadsImages(model)) {
    AppendTranspose(plan.shape.images[0], ToChannelsLastKind(), &plan.stages);
    channels_last = true;
  }
  const auto leave_images = [&](const Image& image) {
    if (channels_last) AppendTranspose(image, FromChannelsLastKind(), &plan.stages);
    channels_last = false;
  };
  for (int i = 0; i < model.layers_size(); ++i) {
    const v1::Layer& layer = model.layers(i);
    if (Joins(layer, &plan.stages)) continue;
    StagePlan stage;
    stage.kind = &StageKindOf(layer);
    stage.layer = i;
    stage.settings = layer;
    stage.layer_kind = &LayerKindOf(layer);
    if (stage.layer_kind->reads == LayerReads::kFeatures) leave_images(plan.shape.images[i]);
    TESSERA_ASSIGN_OR_RETURN(const LayerShape shape,
                             stage.layer_kind->shape(layer, plan.shape.images[i]));
    stage.map = shape.map;
    stage.inputs = plan.shape.widths[i];
    stage.outputs = plan.shape.widths[i + 1];
    Append(std::move(stage), &plan.stages);
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
                    at_cut->layer == cut && at_cut->layer_kind->reads == LayerReads::kFeatures;
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
      const int before = static_cast<int>(at_cut - whole.stages.begin());
      for (StagePlan& stage : half.stages) {
        for (int& read : stage.reads) read = std::max(read - before, kNetworkInput);
      }
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
  const int64_t evaluation_floats = floats;
  floats += plan.parameter_floats - GradientsBegin(plan, steps_first_weight);
  if (steps_first_weight && minibatch_max > batch_max) {
    floats += minibatch_max * plan.stages[0].outputs;
  }
  int64_t bf16 = 0;
  int64_t outputs_max = 0;
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const StagePlan& stage = plan.stages[i];
    // The batch itself is the caller's and is never written.
    if (i == 0 || !stage.kind->forward_in_place) floats += batch_max * stage.outputs;
    if (stage.kind->kept_floats != nullptr) floats += stage.kind->kept_floats(stage);
    if (stage.kind->is_product) {
      const bool in_f32 = i == 0 && sparse_input;
      if (!in_f32) bf16 += batch_max * stage.inputs + stage.weight_size;
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
