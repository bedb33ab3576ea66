#include "common/layout/layers/layer_kinds.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/layout/layers/batch_norm.h"
#include "common/layout/layers/block.h"
#include "common/layout/layers/conv2d.h"
#include "common/layout/layers/linear.h"
#include "common/layout/layers/norms.h"
#include "common/layout/layers/pool.h"
#include "common/layout/layers/sequence.h"

namespace tessera {
namespace {

// A function of each value by itself.
LayerKind ActivationKind(v1::Layer::KindCase kind) {
  return {kind, LayerReads::kUnits, ShapeOfUnits};
}

// The first layer of a kind that `is_wanted`, in the order of the job file and within blocks as well; null: none.
template <typename F>
const LayerKind* FindLayer(const google::protobuf::RepeatedPtrField<v1::Layer>& layers,
                           const F& is_wanted) {
  for (const v1::Layer& layer : layers) {
    const LayerKind* const kind = FindLayerKind(layer);
    if (kind != nullptr && is_wanted(*kind)) return kind;
    const auto* const copies = layer.has_repeat() ? &layer.repeat().layers() : nullptr;
    const std::vector<BlockPart> parts =
        copies == nullptr ? PartsOf(layer) : std::vector<BlockPart>{{"", "", copies}};
    for (const BlockPart& part : parts) {
      if (const LayerKind* const found = FindLayer(*part.layers, is_wanted)) return found;
    }
  }
  return nullptr;
}

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
  static const LayerKind kKinds[] = {LinearKind(),
                                     Conv2dKind(),
                                     MaxPoolKind(),
                                     AveragePoolKind(),
                                     BatchNormKind(),
                                     ActivationKind(v1::Layer::kRelu),
                                     DropoutKind(),
                                     LayerNormKind(),
                                     GroupNormKind(),
                                     LocalResponseNormKind(),
                                     ActivationKind(v1::Layer::kGelu),
                                     ActivationKind(v1::Layer::kTanh),
                                     ActivationKind(v1::Layer::kSigmoid),
                                     ActivationKind(v1::Layer::kSilu),
                                     ActivationKind(v1::Layer::kLeakyRelu),
                                     EmbeddingKind(),
                                     AttentionKind(),
                                     ResidualKind(),
                                     ConcatKind()};
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
    absl::StrAppend(&names, NameOf(kind.kind_case), ", ");
  }
  names.resize(names.size() - 2);
  return absl::StrCat(names, " or ", NameOf(v1::Layer::kRepeat));
}

bool ReadsImages(const v1::Model& model) {
  const LayerKind* const kind = FindLayer(model.layers(), [](const LayerKind& each) {
    return each.reads == LayerReads::kFeatures || each.reads == LayerReads::kImages;
  });
  return kind != nullptr && kind->reads == LayerReads::kImages;
}

bool Calibrates(const v1::Model& model) {
  return FindLayer(model.layers(), [](const LayerKind& kind) { return kind.calibrates(); }) !=
         nullptr;
}

bool ReadsSparse(const v1::Model& model) {
  if (model.layers().empty()) return false;
  const LayerKind* const first = FindLayerKind(model.layers(0));
  return first != nullptr && first->reads_sparse;
}

}  // namespace tessera
