#include "common/layout/layers/pool.h"

#include "common/base/check.h"
#include "common/layout/layers/window.h"

namespace tessera {
namespace {

absl::StatusOr<LayerShape> ShapeOf(const v1::Pool& pool, const Image& before) {
  const HeightAndWidth kernel = PairOf(pool.kernel(), {before.height, before.width});
  WindowedLayer windowed;
  windowed.window = WindowOf(kernel, PairOf(pool.stride(), kernel), PairOf(pool.padding(), {0, 0}));
  windowed.channels = before.channels;
  windowed.padding_max = {kernel.height / 2, kernel.width / 2};
  LayerShape shape;
  TESSERA_ASSIGN_OR_RETURN(shape.map, CheckedMap(before, windowed));
  return shape;
}

absl::StatusOr<LayerShape> MaxShape(const v1::Layer& layer, const Image& before, int64_t) {
  return ShapeOf(layer.max_pool(), before);
}

absl::StatusOr<LayerShape> AverageShape(const v1::Layer& layer, const Image& before, int64_t) {
  return ShapeOf(layer.avg_pool(), before);
}

}  // namespace

LayerKind MaxPoolKind() { return {v1::Layer::kMaxPool, LayerReads::kImages, MaxShape}; }

LayerKind AveragePoolKind() { return {v1::Layer::kAvgPool, LayerReads::kImages, AverageShape}; }

}  // namespace tessera
