#include "common/layout/layer_cut.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"

namespace tessera {

namespace {

bool IsLinear(const ModelLayer& layer) { return layer.kind->reads == LayerReads::kFeatures; }

// Whether layer `cut` and those behind it read nothing in front of it but the output directly in front.
bool ReadsOneActivation(const ModelShape& shape, int cut) {
  return std::all_of(shape.layers.begin() + cut, shape.layers.end(), [&](const ModelLayer& layer) {
    return std::all_of(layer.reads.begin(), layer.reads.end(),
                       [&](int read) { return read >= cut - 1; });
  });
}

}  // namespace

absl::StatusOr<LayerCut> CutBeforeLinear(const v1::Model& model, absl::string_view name) {
  TESSERA_ASSIGN_OR_RETURN(const ModelShape shape, ShapeOf(model));
  if (shape.vocabulary > 0) {
    return absl::InvalidArgumentError(
        "model.input: got tokens, want sizes: what a model of tokens would send from one half to "
        "the other is more "
        "than its weights, and its embedding and its last layer belong together; use another "
        "method");
  }
  const auto found = std::find_if(
      shape.layers.begin(), shape.layers.end(),
      [&](const ModelLayer& layer) { return name.empty() ? IsLinear(layer) : layer.name == name; });
  LayerCut cut;
  cut.layers = static_cast<int>(shape.layers.size());
  cut.parameters = static_cast<int>(shape.parameters.size());
  cut.layer = static_cast<int>(found - shape.layers.begin());
  const auto first = std::find_if(shape.parameters.begin(), shape.parameters.end(),
                                  [&](const ParameterSpec& p) { return p.layer >= cut.layer; });
  cut.parameter = static_cast<int>(first - shape.parameters.begin());
  const bool has_convolution =
      std::any_of(shape.layers.begin(), found, [](const ModelLayer& layer) {
        return layer.kind->reads == LayerReads::kImages && layer.kind->learns;
      });
  if (name.empty() && (found == shape.layers.end() || !has_convolution)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model.layers: there is no ", has_convolution ? "linear layer" : "convolution",
        has_convolution ? " behind the convolutions" : " in front of the first linear layer",
        ", want both: the model is cut between them"));
  }
  const std::string got = absl::StrCat("cut: got \"", name, "\", ");
  if (found == shape.layers.end() || !IsLinear(*found)) {
    std::vector<std::string> names;
    for (const ModelLayer& layer : shape.layers) {
      if (IsLinear(layer)) names.push_back(layer.name);
    }
    return absl::InvalidArgumentError(
        absl::StrCat(got, "want a linear layer: ", absl::StrJoin(names, ", ")));
  }
  if (!ReadsOneActivation(shape, cut.layer)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name.empty() ? "model.layers: " : got, "the cut in front of ", found->name,
                     " goes through a block, want it in front of or behind the whole block"));
  }
  if (cut.front().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(got, "want a layer with parameters in front of it: both halves learn"));
  }
  return cut;
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
