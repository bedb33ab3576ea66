#include "common/layout/layers/sequence.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/layout/layers/linear.h"

namespace tessera {
namespace {

absl::StatusOr<LayerShape> ShapeOfEmbedding(const v1::Layer& layer, const Image& before,
                                            int64_t vocabulary) {
  const v1::Embedding& keys = layer.embedding();
  const int64_t units = keys.units();
  const int64_t rows = std::max(vocabulary, before.height);
  if (units < 1 || units > kModelSizeMax / rows) {
    return absl::InvalidArgumentError(absl::StrCat(units, " units for each of ", rows,
                                                   " tokens, want between 1 and 2^40 weights"));
  }
  Image to = before;
  to.channels = units;
  LayerShape shape{{before, to, {}}};
  const auto add = [&](const char* name, int64_t count) {
    ParameterSpec spec{name, count, units};
    spec.initial_stddev = static_cast<float>(keys.stddev());
    shape.parameters.push_back(std::move(spec));
  };
  add("weight", vocabulary);
  if (keys.positions() == "learned") add("positions", before.height);
  return shape;
}

// The product in front of the heads has PyTorch's names, and its initial values of xavier_uniform_.
absl::StatusOr<LayerShape> ShapeOfInput(const v1::Layer& layer, const Image& before,
                                        int64_t vocabulary) {
  TESSERA_ASSIGN_OR_RETURN(LayerShape shape, ShapeOfLinear(layer, before, vocabulary));
  ParameterSpec& weight = shape.parameters.front();
  weight.initial_bound =
      static_cast<float>(std::sqrt(6.0 / static_cast<double>(weight.rows + weight.columns)));
  for (ParameterSpec& spec : shape.parameters) {
    if (spec.is_vector) spec.initial_bound = 0;
    spec.name = absl::StrCat("in_proj_", spec.name);
  }
  return shape;
}

absl::StatusOr<LayerShape> ShapeOfOutput(const v1::Layer& layer, const Image& before,
                                         int64_t vocabulary) {
  TESSERA_ASSIGN_OR_RETURN(LayerShape shape, ShapeOfLinear(layer, before, vocabulary));
  if (shape.parameters.size() > 1) shape.parameters.back().initial_bound = 0;
  return shape;
}

absl::StatusOr<LayerShape> ShapeOfHeads(const v1::Layer&, const Image& before, int64_t) {
  Image to = before;
  to.channels /= 3;
  return LayerShape{{before, to, {}}};
}

// Both products make units by rows of weights, as linear layers do.
LayerKind ProductKind(LayerKind kind) {
  kind.learns = true;
  kind.units = [](const v1::Layer& layer) { return layer.linear().units(); };
  kind.set_units = [](int64_t units, v1::Layer* layer) {
    layer->mutable_linear()->set_units(units);
  };
  return kind;
}

}  // namespace

LayerKind EmbeddingKind() {
  LayerKind kind{v1::Layer::kEmbedding, LayerReads::kSequence, ShapeOfEmbedding};
  kind.learns = true;
  return kind;
}

LayerKind AttentionKind() { return {v1::Layer::kAttention, LayerReads::kSequence, ShapeOfHeads}; }

absl::StatusOr<AttentionParts> PartsOfAttention(const v1::Layer& layer, const Image& before) {
  static const LayerKind kInput = [] {
    LayerKind kind = ProductKind({v1::Layer::kLinear, LayerReads::kSequence, ShapeOfInput});
    kind.reads_whole = true;
    return kind;
  }();
  static const LayerKind kHeads = AttentionKind();
  static const LayerKind kOutput = [] {
    LayerKind kind = ProductKind({v1::Layer::kLinear, LayerReads::kSequence, ShapeOfOutput});
    kind.makes_whole = true;
    return kind;
  }();

  v1::Layer heads = layer;
  v1::Attention& keys = *heads.mutable_attention();
  if (keys.head_size() == 0) {
    if (before.channels % keys.heads() != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("heads is ", keys.heads(), " with ", before.channels,
                       " units in front, want a divisor of them, or head_size"));
    }
    keys.set_head_size(before.channels / keys.heads());
  }
  const int64_t width = keys.heads() * keys.head_size();
  const auto product = [&](int64_t units) {
    v1::Layer linear;
    linear.mutable_linear()->set_units(units);
    linear.mutable_linear()->set_bias(keys.bias());
    return linear;
  };
  const int64_t each = keys.head_size();
  return AttentionParts{{{{&kInput, product(3 * width), "", 3, each},
                          {&kHeads, heads, "", 1, each},
                          {&kOutput, product(before.channels), ".out_proj"}}}};
}

}  // namespace tessera
