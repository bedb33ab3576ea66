// The table of the kinds of layers that a job may name.
#ifndef TESSERA_COMMON_LAYOUT_LAYERS_LAYER_KINDS_H_
#define TESSERA_COMMON_LAYOUT_LAYERS_LAYER_KINDS_H_

#include <string>

#include "absl/types/span.h"
#include "common/layout/layers/layer_kind.h"
#include "proto/job.pb.h"

namespace tessera {

// All of them, in the order in which messages list them.
absl::Span<const LayerKind> LayerKinds();

// The entry of `layer`; null where the layer has no kind.
const LayerKind* FindLayerKind(const v1::Layer& layer);
// The entry of a layer of a model that ShapeOf accepts, all of whose layers have a kind.
const LayerKind& LayerKindOf(const v1::Layer& layer);

// The name of a kind in the job file: "batch_norm". "no layer" where the layer has no kind.
std::string LayerName(const v1::Layer& layer);
// The names of all kinds, blocks and repeat too: "linear, conv2d, ... or repeat".
std::string LayerNames();

// Whether the model reads its rows as images: there is a layer of images in front of the first one that reads
// features.
bool ReadsImages(const v1::Model& model);
// Whether evaluation of the model needs constants that are calibrated.
bool Calibrates(const v1::Model& model);
// Whether the model's first layer may read sparse rows.
bool ReadsSparse(const v1::Model& model);

}  // namespace tessera

#endif  // TESSERA_COMMON_LAYOUT_LAYERS_LAYER_KINDS_H_
