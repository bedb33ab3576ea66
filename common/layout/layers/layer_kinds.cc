#include "common/layout/layers/layer_kinds.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/layout/layers/batch_norm.h"
#include "common/layout/layers/conv2d.h"
#include "common/layout/layers/linear.h"
#include "common/layout/layers/pool.h"

namespace tessera {
namespace {

LayerKind ReluKind() { return {v1::Layer::kRelu, LayerReads::kUnits, ShapeOfUnits}; }

LayerKind DropoutKind() {
  LayerKind kind{v1::Layer::kDropout, LayerReads::kUnits, ShapeOfUnits};
  kind.is_off_in_evaluation = true;
  return kind;
}

std::string NameOf(v1::Layer::KindCase kind) {
  return v1::Layer::descriptor()->FindFieldByNumber(kind)->name();
}

}  // namespace

absl::Span<const LayerKind> LayerKinds() {
  static const LayerKind kKinds[] = {LinearKind(),      Conv2dKind(),    MaxPoolKind(),
                                     AveragePoolKind(), BatchNormKind(), ReluKind(),
                                     DropoutKind()};
  return kKinds;
}

const LayerKind* FindLayerKind(const v1::Layer& layer) {
  for (const LayerKind& kind : LayerKinds()) {
    if (kind.kind_case == layer.kind_case()) return &kind;
  }
  return nullptr;
}

const LayerKind& LayerKindOf(const v1::Layer& layer) {
  const LayerKind* const kind = FindLayerKind(layer);
  TESSERA_CHECK(kind != nullptr);
  return *kind;
}

std::string LayerName(const v1::Layer& layer) {
  return layer.kind_case() == v1::Layer::KIND_NOT_SET ? "no layer" : NameOf(layer.kind_case());
}

std::string LayerNames() {
  std::string names;
  for (const LayerKind& kind : LayerKinds()) {
    const bool is_last = &kind == &LayerKinds().back();
    const char* const before = names.empty() ? "" : is_last ? " or " : ", ";
    absl::StrAppend(&names, before, NameOf(kind.kind_case));
  }
  return names;
}

bool ReadsImages(const v1::Model& model) {
  for (const v1::Layer& layer : model.layers()) {
    const LayerKind* const kind = FindLayerKind(layer);
    if (kind != nullptr && kind->reads == LayerReads::kFeatures) return false;
    if (kind != nullptr && kind->reads == LayerReads::kImages) return true;
  }
  return false;
}

bool Calibrates(const v1::Model& model) {
  return std::any_of(model.layers().begin(), model.layers().end(), [](const v1::Layer& layer) {
    const LayerKind* const kind = FindLayerKind(layer);
    return kind != nullptr && kind->calibrates();
  });
}

bool ReadsSparse(const v1::Model& model) {
  if (model.layers().empty()) return false;
  const LayerKind* const first = FindLayerKind(model.layers(0));
  return first != nullptr && first->reads_sparse;
}

}  // namespace tessera
