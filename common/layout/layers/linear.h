// linear: y = x W^T + b, W [units, inputs].
#ifndef TESSERA_COMMON_LAYOUT_LAYERS_LINEAR_H_
#define TESSERA_COMMON_LAYOUT_LAYERS_LINEAR_H_

#include "common/layout/layers/layer_kind.h"

namespace tessera {

LayerKind LinearKind();

}  // namespace tessera

#endif  // TESSERA_COMMON_LAYOUT_LAYERS_LINEAR_H_
