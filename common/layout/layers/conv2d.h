// conv2d: a convolution of images, W [channels, channels before it / groups, kernel's height, kernel's width].
#ifndef TESSERA_COMMON_LAYOUT_LAYERS_CONV2D_H_
#define TESSERA_COMMON_LAYOUT_LAYERS_CONV2D_H_

#include "common/layout/layers/layer_kind.h"

namespace tessera {

// The weight is a matrix with a row for each channel; its columns run over the channels before it that are of
// its group and the kernel's rows and columns, in that order.
LayerKind Conv2dKind();

}  // namespace tessera

#endif  // TESSERA_COMMON_LAYOUT_LAYERS_CONV2D_H_
