// linear: y = x W^T + b, W [units, inputs].
#ifndef TESSERA_COMMON_LAYOUT_LAYERS_LINEAR_H_
#define TESSERA_COMMON_LAYOUT_LAYERS_LINEAR_H_

#include "common/layout/layers/layer_kind.h"

namespace tessera {

LayerKind LinearKind();

// The shape of a linear layer; in a model of tokens it acts on each place. A tied one has no weight of its own.
absl::StatusOr<LayerShape> ShapeOfLinear(const v1::Layer& layer, const Image& before,
                                         int64_t vocabulary);

}  // namespace tessera

#endif  // TESSERA_COMMON_LAYOUT_LAYERS_LINEAR_H_
