#include "common/layout/parameters.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/philox.h"
#include "common/layout/image_layers.h"

namespace tessera {
namespace {

constexpr int64_t kModelSizeMax = int64_t{1} << 40;

}  // namespace

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
  int first_linear = -1;
  for (int i = 0; i < model.layers_size(); ++i) {
    const v1::Layer& layer = model.layers(i);
    const std::string where = absl::StrCat("model.layers[", i, "]: ");
    const std::string prefix = absl::StrCat("layers.", i, ".");
    const auto add = [&](const char* kind, int64_t rows, int64_t columns, bool is_vector,
                         float bound, float constant) {
      shape.parameters.push_back({prefix + kind, rows, columns, is_vector, i, bound, constant});
      shape.size += rows * columns;
    };
    // A matrix and, if it has one, its bias.
    const auto add_product = [&](int64_t rows, int64_t columns, bool bias) {
      const float bound = static_cast<float>(1.0 / std::sqrt(static_cast<double>(columns)));
      add("weight", rows, columns, false, bound, 0);
      if (bias) add("bias", rows, 1, true, bound, 0);
      learns = true;
    };
    if (layer.has_linear()) {
      const int64_t units = layer.linear().units();
      if (units < 1 || units > kModelSizeMax / image.size()) {
        return absl::InvalidArgumentError(absl::StrCat(where, units, " units on ", image.size(),
                                                       " inputs, want between 1 and 2^40 weights"));
      }
      add_product(units, image.size(), layer.linear().bias());
      image = {units, 1, 1};
      if (first_linear < 0) first_linear = i;
    } else if (ReadsImages(layer)) {
      if (first_linear >= 0) {
        return absl::InvalidArgumentError(
            absl::StrCat(where, "convolutions and pooling read images, and layers[", first_linear,
                         "], which is linear, makes none; want it in front of that"));
      }
      const absl::StatusOr<ImageMap> map = MapOf(layer, image);
      if (!map.ok()) return absl::InvalidArgumentError(absl::StrCat(where, map.status().message()));
      if (layer.has_conv2d()) {
        const int64_t columns = image.channels * map->window.size();
        const size_t weight = shape.parameters.size();
        add_product(map->to.channels, columns, layer.conv2d().bias());
        shape.parameters[weight].columns_are = {image.channels, map->window.height,
                                                map->window.width};
      }
      image = map->to;
    } else if (layer.has_batch_norm() && layer.batch_norm().affine()) {
      add("weight", image.channels, 1, true, 0, 1);
      add("bias", image.channels, 1, true, 0, 0);
    }
    shape.images.push_back(image);
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
