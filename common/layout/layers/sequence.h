// embedding and attention: the layers of sequences of tokens.
#ifndef TESSERA_COMMON_LAYOUT_LAYERS_SEQUENCE_H_
#define TESSERA_COMMON_LAYOUT_LAYERS_SEQUENCE_H_

#include <array>
#include <cstdint>

#include "absl/status/statusor.h"
#include "common/layout/image.h"
#include "common/layout/layers/layer_kind.h"
#include "proto/job.pb.h"

namespace tessera {

LayerKind EmbeddingKind();
// What lies between an attention layer's two products: heads without parameters.
LayerKind AttentionKind();

// An attention layer as it is computed: the product that makes queries, keys and values, [3, heads, head size] in each
// place; the heads; and the product behind them.
struct AttentionParts {
  struct Part {
    const LayerKind* kind;
    v1::Layer settings;
    // What stands between the layer's name and the names of the part's parameters: "" or ".out_proj".
    const char* name;
    // A place of the part's output is [unit_times, heads, unit_each]; 0: it is no dimension of heads.
    int64_t unit_times = 0;
    int64_t unit_each = 0;
  };
  std::array<Part, 3> parts;
};

// kInvalidArgument: the heads do not divide what the layer reads and no head size is given, or there would be too many
// weights.
absl::StatusOr<AttentionParts> PartsOfAttention(const v1::Layer& layer, const Image& before);

}  // namespace tessera

#endif  // TESSERA_COMMON_LAYOUT_LAYERS_SEQUENCE_H_
