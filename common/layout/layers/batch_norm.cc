#include "common/layout/layers/batch_norm.h"

namespace tessera {
namespace {

double Epsilon(const v1::Layer& layer) { return layer.batch_norm().epsilon(); }

absl::StatusOr<LayerShape> Shape(const v1::Layer& layer, const Image& before, int64_t) {
  LayerShape shape{{before, before, {}}};
  if (!layer.batch_norm().affine()) return shape;
  shape.parameters.push_back({"weight", before.channels, 1, true, 0, 0, 1});
  shape.parameters.push_back({"bias", before.channels, 1, true, 0, 0, 0});
  return shape;
}

}  // namespace

LayerKind BatchNormKind() {
  LayerKind kind{v1::Layer::kBatchNorm, LayerReads::kUnits, Shape};
  kind.epsilon = Epsilon;
  return kind;
}

}  // namespace tessera
