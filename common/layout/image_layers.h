// What the layers that read images make of one.
#ifndef TESSERA_COMMON_LAYOUT_IMAGE_LAYERS_H_
#define TESSERA_COMMON_LAYOUT_IMAGE_LAYERS_H_

#include "absl/status/statusor.h"
#include "common/layout/image.h"
#include "proto/job.pb.h"

namespace tessera {

// Convolution and pooling.
bool ReadsImages(const v1::Layer& layer);

// Does the model read its rows as images: is there such a layer in front of its first linear one?
bool ReadsImages(const v1::Model& model);

// Of such a layer, behind `from`. kInvalidArgument, with the key and what is wanted of it: the window
// does not fit or lies in padding alone somewhere, there would be more than 2^24 values behind it, or an
// output of a convolution would be computed from more than that.
absl::StatusOr<ImageMap> MapOf(const v1::Layer& layer, const Image& from);

}  // namespace tessera

#endif  // TESSERA_COMMON_LAYOUT_IMAGE_LAYERS_H_
