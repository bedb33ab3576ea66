#include "common/layout/parameters.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/philox.h"

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
  shape.widths.push_back(width);
  bool has_linear = false;
  for (int i = 0; i < model.layers_size(); ++i) {
    const v1::Layer& layer = model.layers(i);
    const std::string prefix = absl::StrCat("layers.", i, ".");
    const auto add = [&](const char* kind, int64_t rows, int64_t columns, bool is_vector,
                         float bound, float constant) {
      shape.parameters.push_back({prefix + kind, rows, columns, is_vector, i, bound, constant});
      shape.size += rows * columns;
    };
    if (layer.has_linear()) {
      const int64_t units = layer.linear().units();
      if (units < 1 || units > kModelSizeMax / width) {
        return absl::InvalidArgumentError(absl::StrCat("model.layers[", i, "]: ", units,
                                                       " units on ", width,
                                                       " inputs, want between 1 and 2^40 weights"));
      }
      const float bound = static_cast<float>(1.0 / std::sqrt(static_cast<double>(width)));
      add("weight", units, width, false, bound, 0);
      if (layer.linear().bias()) add("bias", units, 1, true, bound, 0);
      width = units;
      has_linear = true;
    } else if (layer.has_batch_norm() && layer.batch_norm().affine()) {
      add("weight", width, 1, true, 0, 1);
      add("bias", width, 1, true, 0, 0);
    }
    shape.widths.push_back(width);
    if (shape.size > kModelSizeMax) {
      return absl::InvalidArgumentError("model.layers: more than 2^40 entries");
    }
  }
  if (!has_linear)
    return absl::InvalidArgumentError("model.layers: no linear layer, nothing to train");
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
      for (int64_t k = 0; k < count; ++k)
        *out++ = spec.initial_bound * (2 * UnitFloat(block[k]) - 1);
    }
  }
}

}  // namespace tessera
