#include "common/layout/layers/linear.h"

#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

int64_t Units(const v1::Layer& layer) { return layer.linear().units(); }

void SetUnits(int64_t units, v1::Layer* layer) { layer->mutable_linear()->set_units(units); }

}  // namespace

absl::StatusOr<LayerShape> ShapeOfLinear(const v1::Layer& layer, const Image& before, int64_t) {
  const int64_t units = Units(layer);
  const int64_t inputs = before.is_sequence ? before.channels : before.size();
  if (units < 1 || units > kModelSizeMax / inputs) {
    return absl::InvalidArgumentError(
        absl::StrCat(units, " units on ", inputs, " inputs, want between 1 and 2^40 weights"));
  }
  Image to{units, 1, 1};
  if (before.is_sequence) {
    to = before;
    to.channels = units;
  }
  LayerShape shape{{before, to, {}}, WeightAndBias(units, inputs, layer.linear().bias())};
  if (layer.linear().tied()) shape.parameters.erase(shape.parameters.begin());
  return shape;
}

LayerKind LinearKind() {
  LayerKind kind{v1::Layer::kLinear, LayerReads::kFeatures, ShapeOfLinear};
  kind.learns = true;
  kind.reads_sparse = true;
  kind.units = Units;
  kind.set_units = SetUnits;
  // The rows and columns of an embedding's weight are whole.
  kind.mixes_units = [](const v1::Layer& layer) { return layer.linear().tied(); };
  return kind;
}

}  // namespace tessera
