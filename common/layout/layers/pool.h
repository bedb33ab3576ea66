// max_pool and avg_pool: the largest or the mean value in each place of a window, channel by channel.
#ifndef TESSERA_COMMON_LAYOUT_LAYERS_POOL_H_
#define TESSERA_COMMON_LAYOUT_LAYERS_POOL_H_

#include "common/layout/layers/layer_kind.h"

namespace tessera {

LayerKind MaxPoolKind();
LayerKind AveragePoolKind();

}  // namespace tessera

#endif  // TESSERA_COMMON_LAYOUT_LAYERS_POOL_H_
