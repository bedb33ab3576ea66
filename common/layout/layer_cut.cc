#include "common/layout/layer_cut.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/layout/layers/layer_kinds.h"

namespace tessera {

absl::StatusOr<LayerCut> CutBeforeLinear(const v1::Model& model) {
  absl::StatusOr<ModelShape> shape = ShapeOf(model);
  if (!shape.ok()) return shape.status();
  LayerCut cut;
  cut.layers = model.layers_size();
  cut.parameters = static_cast<int>(shape->parameters.size());
  while (cut.layer < cut.layers &&
         LayerKindOf(model.layers(cut.layer)).reads != LayerReads::kFeatures) {
    ++cut.layer;
  }
  const auto first = std::find_if(shape->parameters.begin(), shape->parameters.end(),
                                  [&](const ParameterSpec& p) { return p.layer >= cut.layer; });
  cut.parameter = static_cast<int>(first - shape->parameters.begin());
  const bool has_convolution = std::any_of(
      model.layers().begin(), model.layers().begin() + cut.layer, [](const v1::Layer& layer) {
        const LayerKind& kind = LayerKindOf(layer);
        return kind.reads == LayerReads::kImages && kind.learns;
      });
  if (cut.layer < cut.layers && has_convolution) return cut;
  return absl::InvalidArgumentError(absl::StrCat(
      "model.layers: there is no ", has_convolution ? "linear layer" : "convolution",
      has_convolution ? " behind the convolutions" : " in front of the first linear layer",
      ", want both: the model is cut between them"));
}

ShardSlices SlicesOfLayers(const ShardSlices& all, const ParameterRange& range) {
  ShardSlices result;
  result.shard = all.shard;
  result.shard_count = all.shard_count;
  for (Slice slice : all.slices) {
    if (slice.parameter < range.begin || slice.parameter >= range.end) continue;
    slice.offset = result.size;
    result.size += slice.size();
    result.slices.push_back(slice);
  }
  return result;
}

}  // namespace tessera
