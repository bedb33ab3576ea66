// Cuts images into launches.
#ifndef TESSERA_KERNELS_CUDA_IMAGES_H_
#define TESSERA_KERNELS_CUDA_IMAGES_H_

#include <algorithm>
#include <cstdint>

#include "common/base/check.h"
#include "kernels/cuda/image_windows.h"
#include "kernels/shape.h"

namespace tessera {

inline cuda::ImageWindows WindowsOf(const ImageMap& map) {
  constexpr int64_t kMax = cuda::ImageWindows::kExtentMax;
  const Window& w = map.window;
  TESSERA_CHECK(map.from.channels <= kMax && w.padding_y <= kMax && w.padding_x <= kMax);
  TESSERA_CHECK(map.from.height + 2 * w.padding_y <= kMax);
  TESSERA_CHECK(map.from.width + 2 * w.padding_x <= kMax);
  TESSERA_CHECK(w.span_y() <= kMax && w.span_x() <= kMax);
  const auto narrow = [](int64_t extent) { return static_cast<int32_t>(extent); };
  cuda::ImageWindows windows;
  windows.channels = narrow(map.from.channels);
  windows.from_height = narrow(map.from.height);
  windows.from_width = narrow(map.from.width);
  windows.to_height = narrow(map.to.height);
  windows.to_width = narrow(map.to.width);
  windows.height = narrow(w.height);
  windows.width = narrow(w.width);
  // One as long as the extent makes one place, as any longer one does.
  windows.stride_y = narrow(std::min(w.stride_y, kMax));
  windows.stride_x = narrow(std::min(w.stride_x, kMax));
  windows.padding_y = narrow(w.padding_y);
  windows.padding_x = narrow(w.padding_x);
  windows.dilation_y = narrow(w.dilation_y);
  windows.dilation_x = narrow(w.dilation_x);
  windows.span_y = narrow(w.span_y());
  windows.span_x = narrow(w.span_x());
  return windows;
}

// The number of images, at least one, that have no more than `limit` of what each has `size` of.
inline int64_t ImagesWithin(int64_t rows, int64_t size, int64_t limit) {
  return std::min(rows, std::max<int64_t>(1, limit / size));
}

}  // namespace tessera

#endif  // TESSERA_KERNELS_CUDA_IMAGES_H_
