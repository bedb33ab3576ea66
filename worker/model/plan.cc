#include "worker/model/plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/layout/layers/layer_kinds.h"
#include "worker/model/image_stages.h"
#include "worker/model/stage_kinds.h"

namespace tessera {
namespace {

constexpr int64_t kFloatsPerCacheLine = 16;

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
    plan->constants += stage.constants();
  }
}

// Whether the stages from `first` on read nothing in front of them but the output directly in front.
bool ReadsOneActivation(const NetworkPlan& plan, int first) {
  return std::all_of(plan.stages.begin() + first, plan.stages.end(), [&](const StagePlan& stage) {
    return std::all_of(stage.reads.begin(), stage.reads.end(),
                       [&](int read) { return read >= first - 1; });
  });
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
                    at_cut->layer == cut && at_cut->layer_kind->reads == LayerReads::kFeatures &&
                    ReadsOneActivation(whole, static_cast<int>(at_cut - whole.stages.begin()));
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
        for (int& read : stage.reads) read -= before;
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

bool IsChain(const NetworkPlan& plan) {
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    if (plan.stages[i].reads != std::vector<int>{static_cast<int>(i) - 1}) return false;
  }
  return true;
}

int64_t GradientsBegin(const NetworkPlan& plan, bool steps_first_weight) {
  if (!steps_first_weight) return 0;
  return plan.parameter_offsets.size() > 1 ? plan.parameter_offsets[1] : plan.parameter_floats;
}

}  // namespace tessera
