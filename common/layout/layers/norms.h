// layer_norm, group_norm and local_response_norm: values over the size of those around them in their row or image.
#ifndef TESSERA_COMMON_LAYOUT_LAYERS_NORMS_H_
#define TESSERA_COMMON_LAYOUT_LAYERS_NORMS_H_

#include "common/layout/layers/layer_kind.h"

namespace tessera {

// The weight and the bias have an entry for each value of a row, or of an image as [channels, height, width].
LayerKind LayerNormKind();
// The weight and the bias have an entry for each channel.
LayerKind GroupNormKind();
LayerKind LocalResponseNormKind();

}  // namespace tessera

#endif  // TESSERA_COMMON_LAYOUT_LAYERS_NORMS_H_
