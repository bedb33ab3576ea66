#include "common/layout/parameters.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/philox.h"
#include "common/layout/layers/layer_kinds.h"

namespace tessera {

absl::StatusOr<ModelShape> ShapeOf(const v1::Model& model) {
  ModelShape shape;
  int64_t width = 1;
  for (const int64_t extent : model.input()) {
    if (extent < 1 || extent > kModelSizeMax / width) {
      return absl::InvalidArgumentError(
          absl::StrCat("model.input: extent is ", extent, ", want at least 1"));
    }
    width *= extent;
  }
  const bool reads_images = ReadsImages(model);
  Image image{width, 1, 1};
  if (reads_images) {
    if (model.input_size() != 3) {
      return absl::InvalidArgumentError(
          absl::StrCat("model.input: got ", model.input_size(),
                       " numbers, want three, [channels, height, width]: convolutions and "
                       "pooling read images"));
    }
    image = {model.input(0), model.input(1), model.input(2)};
  }
  shape.images.push_back(image);
  bool learns = false;
  int flattens = -1;  // the first layer that reads features
  for (int i = 0; i < model.layers_size(); ++i) {
    const v1::Layer& layer = model.layers(i);
    const LayerKind* const kind = FindLayerKind(layer);
    const std::string where = absl::StrCat("model.layers[", i, "]: ");
    if (kind == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(where, "no kind is set, want ", LayerNames()));
    }
    if (kind->reads == LayerReads::kImages && flattens >= 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          where, "convolutions and pooling read images, and layers[", flattens, "], which is ",
          LayerName(model.layers(flattens)), ", makes none; want it in front of that"));
    }
    absl::StatusOr<LayerShape> made = kind->shape(layer, image);
    if (!made.ok()) return absl::InvalidArgumentError(absl::StrCat(where, made.status().message()));
    for (ParameterSpec& spec : made->parameters) {
      spec.name = absl::StrCat("layers.", i, ".", spec.name);
      spec.layer = i;
      shape.size += spec.size();
      shape.parameters.push_back(std::move(spec));
    }
    image = made->map.to;
    shape.images.push_back(image);
    if (kind->reads == LayerReads::kFeatures && flattens < 0) flattens = i;
    learns = learns || kind->learns;
    if (shape.size > kModelSizeMax) {
      return absl::InvalidArgumentError("model.layers: more than 2^40 entries");
    }
  }
  for (const Image& each : shape.images) shape.widths.push_back(each.size());
  if (!learns) {
    return absl::InvalidArgumentError(
        "model.layers: no linear layer and no convolution, want at least one linear or conv2d: "
        "there is nothing to train");
  }
  return shape;
}

void FillInitialRows(const ParameterSpec& spec, int index, uint64_t seed, int64_t row_begin,
                     int64_t row_end, float* out) {
  if (spec.initial_bound == 0) {
    std::fill(out, out + (row_end - row_begin) * spec.columns, spec.initial_constant);
    return;
  }
  const uint64_t blocks_per_row = (spec.columns + 3) / 4;
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t column = 0; column < spec.columns; column += 4) {
      const PhiloxBlock block =
          Philox(seed, Stream::kInitialValues, index, row * blocks_per_row + column / 4);
      const int64_t count = std::min<int64_t>(4, spec.columns - column);
      for (int64_t k = 0; k < count; ++k) {
        *out++ = spec.initial_bound * (2 * UnitFloat(block[k]) - 1);
      }
    }
  }
}

}  // namespace tessera
