// batch_norm: each unit less its mean and over its deviation, with a learned scale and shift if it is affine.
#ifndef TESSERA_COMMON_LAYOUT_LAYERS_BATCH_NORM_H_
#define TESSERA_COMMON_LAYOUT_LAYERS_BATCH_NORM_H_

#include "common/layout/layers/layer_kind.h"

namespace tessera {

// The scale starts at 1, the shift at 0.
LayerKind BatchNormKind();

}  // namespace tessera

#endif  // TESSERA_COMMON_LAYOUT_LAYERS_BATCH_NORM_H_
