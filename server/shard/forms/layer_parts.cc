#include "server/shard/forms/layer_parts.h"

#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace tessera {
namespace {

using Entries = std::shared_ptr<const ExchangedEntries>;

std::shared_ptr<const LayerPart> PartOf(const ParameterRange& layers, int64_t begin,
                                        const ShardSlices& all, const ModelShape& shape,
                                        const CodecChoice& codecs) {
  const ShardSlices slices = SlicesOfLayers(all, layers);
  return std::make_shared<const LayerPart>(layers, EntryRun{begin, begin + slices.size},
                                           CodedForms(codecs, slices, shape));
}

std::string Describe(const ParameterRange& layers) {
  return absl::StrCat(layers.begin, " to ", layers.end);
}

}  // namespace

LayerParts::LayerParts(const LayerCut& cut, const ShardSlices& slices, const ModelShape& shape,
                       const CodecChoice& codecs)
    : JobKeys(shape, slices, codecs),
      front_(PartOf(cut.front(), 0, slices, shape, codecs)),
      back_(PartOf(cut.back(), front_->count(), slices, shape, codecs)),
      nothing_(PartOf({}, 0, slices, shape, codecs)) {
  // The parts in front and behind lie one after the other in the shard's entries.
  TESSERA_CHECK(cut.parameters == static_cast<int>(shape.parameters.size()));
  TESSERA_CHECK(back_->run()->end == slices.size);
}

std::shared_ptr<const LayerPart> LayerParts::Of(const ParameterRange& layers) const {
  if (layers.empty()) return nothing_;
  if (layers == front_->layers()) return front_;
  return layers == back_->layers() ? back_ : nullptr;
}

absl::StatusOr<Entries> LayerParts::Named(const ParameterRange& layers) const {
  Entries part = Of(layers);
  if (part != nullptr) return part;
  return absl::InvalidArgumentError(absl::StrCat(
      "layers are parameters ", Describe(layers), ", want ", Describe(front_->layers()), ", ",
      Describe(back_->layers()), " or none; the job's methods differ"));
}

absl::StatusOr<Entries> LayerParts::OfPush(const NamedKeys& keys, uint64_t summed) const {
  const auto* layers = std::get_if<ParameterRange>(&keys);
  if (layers == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("keys are ", KeysWord(keys), ", want some layers'; the job's methods differ"));
  }
  if (summed < 1 || summed > kSummedMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("summed is ", summed, ", want 1 to ", kSummedMax));
  }
  return Named(*layers);
}

absl::StatusOr<Entries> LayerParts::OfRead(const NamedKeys& keys) const {
  if (const auto* layers = std::get_if<ParameterRange>(&keys)) return Named(*layers);
  absl::StatusOr<Entries> entries = JobKeys::OfRead(keys);
  if (entries.ok() || !std::holds_alternative<UnknownKeys>(keys)) return entries;
  return absl::InvalidArgumentError(absl::StrCat(entries.status().message(), " or some layers'"));
}

}  // namespace tessera
