// Windows over images that lie channels last, for the kernels of convolution.cc and pooling.cc.
#ifndef TESSERA_KERNELS_CUDA_IMAGE_WINDOWS_H_
#define TESSERA_KERNELS_CUDA_IMAGE_WINDOWS_H_

#include <cstdint>

#include "kernels/cuda/launch.h"

namespace tessera::cuda {

// An ImageMap in 32 bits, in which a GPU divides several times as fast. Extents with their padding and
// strides are at most kExtentMax, and a launch has no more than kItemsMax items, whatever they are.
struct ImageWindows {
  static constexpr int64_t kExtentMax = int64_t{1} << 30;
  static constexpr int64_t kItemsMax = int64_t{1} << 31;

  int32_t channels;  // of what windows move over
  int32_t from_height, from_width;
  int32_t to_height, to_width;
  int32_t height, width;  // of the window
  int32_t stride_y, stride_x;
  int32_t padding_y, padding_x;
  int32_t dilation_y, dilation_x;
  int32_t span_y, span_x;  // of the window, from its first place to its last

  struct Place {
    uint32_t image;
    int32_t y, x;
  };
  TESSERA_HOST_DEVICE static Place PlaceAt(uint32_t at, int32_t height, int32_t width) {
    const auto h = static_cast<uint32_t>(height), w = static_cast<uint32_t>(width);
    const uint32_t row = at / w;
    return {row / h, static_cast<int32_t>(row % h), static_cast<int32_t>(at % w)};
  }

  // Numbers of a place in the images that windows move over, and in those that they make.
  TESSERA_HOST_DEVICE int64_t From(uint32_t image, int32_t y, int32_t x) const {
    return (int64_t{image} * from_height + y) * from_width + x;
  }
  TESSERA_HOST_DEVICE int64_t To(uint32_t image, int32_t y, int32_t x) const {
    return (int64_t{image} * to_height + y) * to_width + x;
  }

  // Calls f(i, j, number of the place) for the window of `to`, place (i, j) after place, row by row, where
  // it lies in the image. The window has no gaps.
  template <typename F>
  TESSERA_HOST_DEVICE void ForInside(const Place& to, const F& f) const {
    const int32_t y = to.y * stride_y - padding_y, x = to.x * stride_x - padding_x;
    const int32_t i_end = Lesser(height, from_height - y), j_end = Lesser(width, from_width - x);
    for (int32_t i = y < 0 ? -y : 0; i < i_end; ++i) {
      for (int32_t j = x < 0 ? -x : 0; j < j_end; ++j) f(i, j, From(to.image, y + i, x + j));
    }
  }

  // Calls f(to, y, x) for the windows that `from` lies so far within from their first place, in rising order. Where
  // windows have gaps it may lie in one.
  template <typename F>
  TESSERA_HOST_DEVICE void ForHolders(const Place& from, const F& f) const {
    const int32_t y = from.y + padding_y, x = from.x + padding_x;
    const int32_t y_end = Lesser(to_height, y / stride_y + 1);
    const int32_t x_end = Lesser(to_width, x / stride_x + 1);
    const int32_t x_begin = FirstHolder(x, span_x, stride_x);
    int32_t oy = FirstHolder(y, span_y, stride_y), ox = x_begin;
    // One loop: the convergence of two, with those of f within, would be kept on the stack.
    while (oy < y_end && ox < x_end) {
      f(Place{from.image, oy, ox}, y - oy * stride_y, x - ox * stride_x);
      const bool ends = ++ox == x_end;
      ox = ends ? x_begin : ox;
      oy += ends ? 1 : 0;
    }
  }

 private:
  TESSERA_HOST_DEVICE static int32_t Lesser(int32_t a, int32_t b) { return a < b ? a : b; }
  TESSERA_HOST_DEVICE static int32_t FirstHolder(int32_t at, int32_t extent, int32_t stride) {
    return at < extent ? 0 : (at - extent) / stride + 1;
  }
};

}  // namespace tessera::cuda

#endif  // TESSERA_KERNELS_CUDA_IMAGE_WINDOWS_H_
