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

// Parameters begin at lines of the cache (64 bytes), where kernels load them fastest.
constexpr int64_t kFloatsPerCacheLine = 16;

// Makes the stages of a model's layers.
class StageMaker {
 public:
  explicit StageMaker(NetworkPlan* plan) : plan_(*plan) {
    const std::vector<ModelLayer>& layers = plan_.shape.layers;
    readers_.resize(layers.size() + 1, 0);
    for (const ModelLayer& layer : layers) {
      for (const int read : layer.reads) ++readers_[read + 1];
    }
  }

  // `reads_images`: what the model reads is images, which lie [channels, height, width].
  absl::Status Make(bool reads_images) {
    made_.push_back({kNetworkInput});
    if (reads_images) {
      // Kernels have channels innermost, images come with the channels outermost: the whole network turns them once at
      // its beginning, not in each layer.
      const int turned = Transposed(plan_.shape.images[0], ToChannelsLastKind(), kNetworkInput);
      made_[0] = {turned, kNetworkInput};
    }
    const std::vector<ModelLayer>& layers = plan_.shape.layers;
    for (int i = 0; i < static_cast<int>(layers.size()); ++i) {
      TESSERA_RETURN_IF_ERROR(Add(layers[i], i));
    }
    // What the network makes lies as the host has images, in its last stage.
    const int last = AsTheHostHasIt(static_cast<int>(layers.size()) - 1);
    TESSERA_CHECK(last == static_cast<int>(plan_.stages.size()) - 1);
    return absl::OkStatus();
  }

 private:
  // The stages that make an activation.
  struct Made {
    int stage = kNetworkInput;
    // The one that has images as the host does; -1: `stage`, where it is no image or there is none yet.
    int as_the_host_has_it = kUnknown;
  };
  static constexpr int kUnknown = -2;

  int Append(StagePlan stage) {
    plan_.stages.push_back(std::move(stage));
    return static_cast<int>(plan_.stages.size()) - 1;
  }

  // Between [channels, height, width] and [height, width, channels]: a stage that reads `read`, or `read` itself where
  // that is the same.
  int Transposed(const Image& image, const StageKind& kind, int read) {
    // With one channel or one position both orders are the same bytes.
    if (image.channels == 1 || image.positions() == 1 || image.is_sequence) return read;
    StagePlan stage;
    stage.kind = &kind;
    stage.reads = {read};
    stage.read_channels = {image.channels};
    stage.inputs = image.size();
    stage.outputs = image.size();
    stage.map = {image, image, {}};
    return Append(std::move(stage));
  }

  int AsTheHostHasIt(int layer) {
    // The transpose is made when the first layer asks for it, and serves all others that do.
    Made& made = made_[layer + 1];
    if (made.as_the_host_has_it == kUnknown) {
      made.as_the_host_has_it =
          Transposed(plan_.shape.images[layer + 1], FromChannelsLastKind(), made.stage);
    }
    return made.as_the_host_has_it;
  }

  // Whether `layer` becomes part of the stage that makes what it reads.
  bool Joins(const ModelLayer& layer) {
    const int read = layer.reads[0];
    const int stage = made_[read + 1].stage;
    // A stage whose output somebody else reads as well must write it as it is.
    if (read == kModelInput || readers_[read + 1] > 1 || stage == kNetworkInput) return false;
    StagePlan& before = plan_.stages[stage];
    if (before.layer != read || before.is_joined) return false;
    if (before.kind->joins != layer.settings.kind_case()) return false;
    // The layer's output is then the stage's output, and readers of the layer read that.
    before.is_joined = true;
    made_.push_back(made_[read + 1]);
    return true;
  }

  absl::Status Add(const ModelLayer& layer, int index) {
    if (Joins(layer)) return absl::OkStatus();
    const ModelShape& shape = plan_.shape;
    StagePlan stage;
    stage.kind = &StageKindOf(layer.settings);
    stage.layer = index;
    stage.settings = layer.settings;
    stage.layer_kind = layer.kind;
    for (const int read : layer.reads) {
      // A linear layer's weight has its columns in the job's order of the values.
      const bool flattens = layer.kind->reads == LayerReads::kFeatures;
      stage.reads.push_back(flattens ? AsTheHostHasIt(read) : made_[read + 1].stage);
      stage.read_channels.push_back(shape.images[read + 1].channels);
    }
    const Image& before = shape.before(index);
    stage.map = {before, shape.images[index + 1], {}};
    if (layer.kind->shape != nullptr) {
      TESSERA_ASSIGN_OR_RETURN(const LayerShape made,
                               layer.kind->shape(layer.settings, before, shape.vocabulary));
      stage.map = made.map;
    }
    stage.inputs = before.size();
    stage.outputs = shape.widths[index + 1];
    stage.tied_weight = layer.tied_to;
    made_.push_back({Append(std::move(stage))});
    return absl::OkStatus();
  }

  NetworkPlan& plan_;
  std::vector<int> readers_;  // by activation, as ModelShape::widths; so is the next one
  std::vector<Made> made_;
};

// What follows from the shape and the stages.
void PlaceParameters(NetworkPlan* plan) {
  const std::vector<ParameterSpec>& parameters = plan->shape.parameters;
  std::vector<int> tied;
  for (StagePlan& stage : plan->stages) {
    if (stage.tied_weight >= 0) tied.push_back(stage.tied_weight);
  }
  // Parameters lie in the order of the layers. A tied weight is the embedding's, and lies there alone.
  for (StagePlan& stage : plan->stages) {
    stage.weight = -1;
    stage.bias = -1;
    const int64_t before = plan->parameter_floats;
    for (int p = 0; p < static_cast<int>(parameters.size()); ++p) {
      if (parameters[p].layer != stage.layer) continue;
      // A layer's weight comes before its bias.
      (stage.weight < 0 && stage.tied_weight < 0 ? stage.weight : stage.bias) = p;
      if (stage.weight == p) stage.weight_size = parameters[p].size();
      TESSERA_CHECK(static_cast<int>(plan->parameter_offsets.size()) == p);
      plan->parameter_offsets.push_back(plan->parameter_floats);
      plan->parameter_floats += (parameters[p].size() + kFloatsPerCacheLine - 1) /
                                kFloatsPerCacheLine * kFloatsPerCacheLine;
    }
    if (stage.tied_weight >= 0) stage.weight_size = parameters[stage.tied_weight].size();
    stage.weight_is_tied =
        stage.weight >= 0 && std::count(tied.begin(), tied.end(), stage.weight) > 0;
    // The largest stage's parameters: a model's back adds up the gradients of one stage at a time.
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
  TESSERA_RETURN_IF_ERROR(StageMaker(&plan).Make(!model.has_tokens() && ReadsImages(model)));
  PlaceParameters(&plan);
  return plan;
}

absl::StatusOr<NetworkPlan> HalfOf(const NetworkPlan& whole, const LayerRange& layers) {
  const int count = static_cast<int>(whole.shape.widths.size()) - 1;
  const bool is_front = layers.begin == 0;
  if (is_front && layers.end == count && whole.part == ModelPart::kWhole) return whole;
  const int cut = is_front ? layers.end : layers.begin;
  // A transpose, whose layer is -1, goes with the stages before it.
  const auto at_cut = std::find_if(whole.stages.begin(), whole.stages.end(),
                                   [&](const StagePlan& stage) { return stage.layer >= cut; });
  // At a linear layer activations are flat, so that the halves agree about their order without knowing the layers of
  // the other.
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
  // The first layer's weight is parameter 0.
  return plan.parameter_offsets.size() > 1 ? plan.parameter_offsets[1] : plan.parameter_floats;
}

}  // namespace tessera
