#include "common/layout/layers/linear.h"

#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

int64_t Units(const v1::Layer& layer) { return layer.linear().units(); }

void SetUnits(int64_t units, v1::Layer* layer) { layer->mutable_linear()->set_units(units); }

absl::StatusOr<LayerShape> Shape(const v1::Layer& layer, const Image& before) {
  const int64_t units = Units(layer);
  if (units < 1 || units > kModelSizeMax / before.size()) {
    return absl::InvalidArgumentError(absl::StrCat(units, " units on ", before.size(),
                                                   " inputs, want between 1 and 2^40 weights"));
  }
  return LayerShape{{before, {units, 1, 1}, {}},
                    WeightAndBias(units, before.size(), layer.linear().bias())};
}

}  // namespace

LayerKind LinearKind() {
  LayerKind kind{v1::Layer::kLinear, LayerReads::kFeatures, Shape};
  kind.learns = true;
  kind.reads_sparse = true;
  kind.units = Units;
  kind.set_units = SetUnits;
  return kind;
}

}  // namespace tessera
