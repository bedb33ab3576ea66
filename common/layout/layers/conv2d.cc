#include "common/layout/layers/conv2d.h"

#include "common/base/check.h"
#include "common/layout/layers/window.h"

namespace tessera {
namespace {

int64_t Units(const v1::Layer& layer) { return layer.conv2d().channels(); }

void SetUnits(int64_t units, v1::Layer* layer) { layer->mutable_conv2d()->set_channels(units); }

absl::StatusOr<LayerShape> Conv2dShape(const v1::Layer& layer, const Image& before, int64_t) {
  const v1::Conv2d& conv = layer.conv2d();
  WindowedLayer windowed;
  windowed.window = WindowOf(PairOf(conv.kernel(), {1, 1}), PairOf(conv.stride(), {1, 1}),
                             PairOf(conv.padding(), {0, 0}));
  const HeightAndWidth dilation = PairOf(conv.dilation(), {1, 1});
  // There is no gap where there is one place.
  windowed.window.dilation_y = windowed.window.height == 1 ? 1 : dilation.height;
  windowed.window.dilation_x = windowed.window.width == 1 ? 1 : dilation.width;
  windowed.channels = conv.channels();
  // A message built by code has no default; 0 is no number that a job file may have.
  windowed.groups = conv.groups() == 0 ? 1 : conv.groups();
  windowed.padding_max = {windowed.window.span_y() - 1, windowed.window.span_x() - 1};
  windowed.sums_channels = true;
  LayerShape shape;
  TESSERA_ASSIGN_OR_RETURN(shape.map, CheckedMap(before, windowed));
  const Window& window = shape.map.window;
  shape.parameters = WeightAndBias(shape.map.to.channels, shape.map.weight_columns(), conv.bias());
  shape.parameters[0].columns_are = {shape.map.group_channels(), window.height, window.width};
  return shape;
}

}  // namespace

LayerKind Conv2dKind() {
  LayerKind kind{v1::Layer::kConv2D, LayerReads::kImages, Conv2dShape};
  kind.learns = true;
  kind.units = Units;
  kind.set_units = SetUnits;
  kind.mixes_units = [](const v1::Layer& layer) { return layer.conv2d().groups() > 1; };
  return kind;
}

}  // namespace tessera
