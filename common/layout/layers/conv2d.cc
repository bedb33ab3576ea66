#include "common/layout/layers/conv2d.h"

#include "common/base/check.h"
#include "common/layout/layers/window.h"

namespace tessera {
namespace {

int64_t Units(const v1::Layer& layer) { return layer.conv2d().channels(); }

void SetUnits(int64_t units, v1::Layer* layer) { layer->mutable_conv2d()->set_channels(units); }

absl::StatusOr<LayerShape> Shape(const v1::Layer& layer, const Image& before) {
  const v1::Conv2d& conv = layer.conv2d();
  WindowedLayer windowed;
  windowed.window = WindowOf(PairOf(conv.kernel(), {1, 1}), PairOf(conv.stride(), {1, 1}),
                             PairOf(conv.padding(), {0, 0}));
  windowed.channels = conv.channels();
  windowed.padding_max = {windowed.window.height - 1, windowed.window.width - 1};
  windowed.sums_channels = true;
  LayerShape shape;
  TESSERA_ASSIGN_OR_RETURN(shape.map, CheckedMap(before, windowed));
  const Window& window = shape.map.window;
  shape.parameters =
      WeightAndBias(shape.map.to.channels, before.channels * window.size(), conv.bias());
  shape.parameters[0].columns_are = {before.channels, window.height, window.width};
  return shape;
}

}  // namespace

LayerKind Conv2dKind() {
  LayerKind kind{v1::Layer::kConv2D, LayerReads::kImages, Shape};
  kind.learns = true;
  kind.units = Units;
  kind.set_units = SetUnits;
  kind.mixes_units = [](const v1::Layer& layer) { return layer.conv2d().groups() > 1; };
  return kind;
}

}  // namespace tessera
