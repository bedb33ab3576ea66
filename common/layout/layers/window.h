// What layers that move a window over an image make of one.
#ifndef TESSERA_COMMON_LAYOUT_LAYERS_WINDOW_H_
#define TESSERA_COMMON_LAYOUT_LAYERS_WINDOW_H_

#include "absl/status/statusor.h"
#include "common/layout/image.h"
#include "google/protobuf/repeated_field.h"

namespace tessera {

using Extents = google::protobuf::RepeatedField<int64_t>;

struct HeightAndWidth {
  int64_t height;
  int64_t width;
};

// A key of the job file that has one number for both or one for each; `absent` where it has none.
HeightAndWidth PairOf(const Extents& values, HeightAndWidth absent);

Window WindowOf(HeightAndWidth kernel, HeightAndWidth stride, HeightAndWidth padding);

// A window of some kind of layer, with so many channels behind it.
struct WindowedLayer {
  Window window;
  int64_t channels = 0;
  // The most padding with which the window looks at more than padding everywhere.
  HeightAndWidth padding_max;
  // Every output is computed from all channels in the window that are of its group, not from its own channel alone.
  bool sums_channels = false;
  int64_t groups = 1;
};

// Behind `from`. kInvalidArgument, with the key and what is wanted of it: the window does not fit or has too much
// padding, there would be more than 2^24 values behind it, or an output would be computed from more than that.
absl::StatusOr<ImageMap> CheckedMap(const Image& from, const WindowedLayer& layer);

}  // namespace tessera

#endif  // TESSERA_COMMON_LAYOUT_LAYERS_WINDOW_H_
