#include "server/shard/layer_parts.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace tessera {
namespace {

LayerPart PartOf(const ParameterRange& layers, int64_t begin, const ShardSlices& all,
                 const ModelShape& shape, const CodecChoice& codecs) {
  const ShardSlices slices = SlicesOfLayers(all, layers);
  return {layers, begin, begin + slices.size, CodedForms(codecs, slices, shape)};
}

std::string Describe(const ParameterRange& layers) {
  return absl::StrCat(layers.begin, " to ", layers.end);
}

}  // namespace

LayerParts::LayerParts(const LayerCut& cut, const ShardSlices& slices, const ModelShape& shape,
                       const CodecChoice& codecs)
    : front_(PartOf(cut.front(), 0, slices, shape, codecs)),
      back_(PartOf(cut.back(), front_.end, slices, shape, codecs)),
      nothing_(PartOf({}, 0, slices, shape, codecs)) {
  TESSERA_CHECK(cut.parameters == static_cast<int>(shape.parameters.size()));
  TESSERA_CHECK(back_.end == slices.size);
}

const LayerPart* LayerParts::Find(const ParameterRange& layers) const {
  if (layers.empty()) return &nothing_;
  if (layers == front_.layers) return &front_;
  return layers == back_.layers ? &back_ : nullptr;
}

absl::StatusOr<const LayerPart*> FindPart(const LayerParts* parts, const ParameterRange& layers,
                                          absl::string_view wanted) {
  if (parts == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("keys are some layers', want ", wanted, "; the job's methods differ"));
  }
  const LayerPart* const part = parts->Find(layers);
  if (part != nullptr) return part;
  return absl::InvalidArgumentError(absl::StrCat(
      "layers are parameters ", Describe(layers), ", want ", Describe(parts->front().layers), ", ",
      Describe(parts->back().layers), " or none; the job's methods differ"));
}

absl::StatusOr<const LayerPart*> FindPushedPart(const LayerParts* parts,
                                                const std::optional<ParameterRange>& layers,
                                                uint64_t summed, absl::string_view keys,
                                                absl::string_view wanted) {
  if (!layers && parts != nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("keys are ", keys, ", want some layers'; the job's methods differ"));
  }
  if (!layers && summed != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("summed is ", summed, ", want 1 where keys are ", keys));
  }
  if (!layers) return nullptr;
  if (summed < 1 || summed > kSummedMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("summed is ", summed, ", want 1 to ", kSummedMax));
  }
  return FindPart(parts, *layers, wanted);
}

}  // namespace tessera
