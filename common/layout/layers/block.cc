#include "common/layout/layers/block.h"

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

namespace tessera {
namespace {

std::string ImageText(const Image& image) {
  return image.positions() == 1
             ? absl::StrCat("[", image.channels, "]")
             : absl::StrCat("[", image.channels, ", ", image.height, ", ", image.width, "]");
}

absl::StatusOr<Image> Sum(absl::Span<const Image> parts) {
  if (parts[0] == parts[1]) return parts[0];
  return absl::InvalidArgumentError(absl::StrCat(
      "the layers of a residual block make ", ImageText(parts[0]), " of a row, and ",
      "its shortcut ", ImageText(parts[1]), ", want the same of both, as they are added"));
}

absl::StatusOr<Image> SideBySide(absl::Span<const Image> parts) {
  Image image = parts[0];
  for (size_t i = 1; i < parts.size(); ++i) {
    if (parts[i].height != image.height || parts[i].width != image.width) {
      return absl::InvalidArgumentError(
          absl::StrCat("branch 0 of a concat makes ", ImageText(parts[0]), " of a row, and branch ",
                       i, " ", ImageText(parts[i]), ", want the same height and width of all"));
    }
    image.channels += parts[i].channels;
  }
  if (image.size() > kModelSizeMax) {
    return absl::InvalidArgumentError("a concat makes more than 2^40 values of a row");
  }
  return image;
}

}  // namespace

LayerKind ResidualKind() {
  LayerKind kind{v1::Layer::kResidual, LayerReads::kParts};
  kind.join = Sum;
  return kind;
}

LayerKind ConcatKind() {
  LayerKind kind{v1::Layer::kConcat, LayerReads::kParts};
  kind.join = SideBySide;
  return kind;
}

std::vector<BlockPart> PartsOf(const v1::Layer& layer) {
  std::vector<BlockPart> parts;
  if (layer.has_residual()) {
    parts.push_back({"layers", "residual.layers", &layer.residual().layers()});
    parts.push_back({"shortcut", "residual.shortcut", &layer.residual().shortcut()});
  }
  for (int i = 0; i < layer.concat().branches_size(); ++i) {
    parts.push_back({absl::StrCat("branches.", i), absl::StrCat("concat.branches[", i, "].layers"),
                     &layer.concat().branches(i).layers()});
  }
  for (int64_t copy = 0; layer.has_repeat() && copy < layer.repeat().times(); ++copy) {
    parts.push_back({absl::StrCat(copy), "repeat.layers", &layer.repeat().layers()});
  }
  return parts;
}

}  // namespace tessera
