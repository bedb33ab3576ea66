#include "common/layout/layers/norms.h"

#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

// A scale that starts at 1 and a shift that starts at 0, [rows, columns] each.
std::vector<ParameterSpec> ScaleAndShift(int64_t rows, int64_t columns, bool is_vector) {
  return {{"weight", rows, columns, is_vector, 0, 0, 1},
          {"bias", rows, columns, is_vector, 0, 0, 0}};
}

absl::StatusOr<LayerShape> ShapeOfLayerNorm(const v1::Layer& layer, const Image& before, int64_t) {
  LayerShape shape{{before, before, {}}};
  if (!layer.layer_norm().affine()) return shape;
  const bool is_row = before.positions() == 1 || before.is_sequence;
  shape.parameters = ScaleAndShift(before.channels, is_row ? 1 : before.positions(), is_row);
  if (is_row) return shape;
  for (ParameterSpec& spec : shape.parameters) spec.columns_are = {before.height, before.width};
  return shape;
}

absl::StatusOr<LayerShape> ShapeOfGroupNorm(const v1::Layer& layer, const Image& before, int64_t) {
  if (before.is_sequence) {
    return absl::InvalidArgumentError(
        "group_norm is for images and features, want layer_norm in a model of tokens");
  }
  const int64_t groups = layer.group_norm().groups();
  if (groups < 1 || before.channels % groups != 0) {
    return absl::InvalidArgumentError(absl::StrCat("groups is ", groups, " with ", before.channels,
                                                   " channels, want a divisor of them"));
  }
  LayerShape shape{{before, before, {}}};
  if (layer.group_norm().affine()) shape.parameters = ScaleAndShift(before.channels, 1, true);
  return shape;
}

LayerKind Mixing(LayerKind kind) {
  kind.mixes_units = [](const v1::Layer&) { return true; };
  return kind;
}

}  // namespace

LayerKind LayerNormKind() {
  return Mixing({v1::Layer::kLayerNorm, LayerReads::kUnitsTogether, ShapeOfLayerNorm});
}

LayerKind GroupNormKind() {
  return Mixing({v1::Layer::kGroupNorm, LayerReads::kUnitsTogether, ShapeOfGroupNorm});
}

LayerKind LocalResponseNormKind() {
  return Mixing({v1::Layer::kLocalResponseNorm, LayerReads::kImages, ShapeOfUnits});
}

}  // namespace tessera
