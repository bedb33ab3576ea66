// What convolution.cc runs beside the products. A patch is what one window sees of an image, in the order
// of the weights' columns (channel, i, j), with zeros for padding.
#ifndef TESSERA_KERNELS_CUDA_CONVOLUTION_KERNELS_H_
#define TESSERA_KERNELS_CUDA_CONVOLUTION_KERNELS_H_

#include <cstdint>
#include <type_traits>

#include "kernels/bf16.h"
#include "kernels/cuda/image_windows.h"
#include "kernels/cuda/tiles.h"

namespace tessera::cuda {

// Weights as cuDNN reads and writes them: `from` is [channels of y, rows, columns], and `to` [channels of y, columns,
// rows], or that is added to it.
template <typename T, bool kAdds>
struct TurnWeights : OnePhase {
  uint32_t items;  // of each
  uint32_t rows, columns;
  const T* from;
  float* to;

  int64_t blocks() const { return CeilDiv(items, kThreads); }

  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, Shared&, Own&) const {
    const int64_t item = lane.block * kThreads + lane.thread;
    if (item >= items) return;
    const auto at = static_cast<uint32_t>(item);
    const uint32_t row = at % rows, rest = at / rows;
    const uint32_t column = rest % columns, channel = rest / columns;
    const T given = from[(int64_t{channel} * rows + row) * columns + column];
    float value;
    if constexpr (std::is_same_v<T, Bf16>) {
      value = tessera::Widen(given);
    } else {
      value = given;
    }
    to[item] = kAdds ? to[item] + value : value;
  }
};

// patches [patch, column] of x. A thread has a column and patches one after the other, so that it divides
// once for all of them.
template <typename T>
struct LayPatches : OnePhase {
  static constexpr int kLanes = 32;  // columns of a block
  static constexpr int kRows = 8;    // of a thread
  static constexpr int kBlockRows = kRows * (kThreads / kLanes);

  ImageWindows windows;
  uint32_t rows, columns;
  const T* x;
  T* patches;

  int64_t blocks() const { return CeilDiv(columns, kLanes) * CeilDiv(rows, kBlockRows); }

  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, Shared&, Own&) const {
    const auto block = static_cast<uint32_t>(lane.block),
               thread = static_cast<uint32_t>(lane.thread);
    const uint32_t tiles = (columns + kLanes - 1) / kLanes;
    const uint32_t column = block % tiles * kLanes + thread % kLanes;
    const uint32_t first = block / tiles * kBlockRows + thread / kLanes * kRows;
    if (column >= columns || first >= rows) return;
    const ImageWindows& w = windows;
    const ImageWindows::Place in = ImageWindows::PlaceAt(column, w.height, w.width);
    ImageWindows::Place to = ImageWindows::PlaceAt(first, w.to_height, w.to_width);
    T values[kRows];
    TESSERA_UNROLL for (int k = 0; k < kRows; ++k) {
      const int32_t from_y = to.y * w.stride_y - w.padding_y + in.y * w.dilation_y;
      const int32_t from_x = to.x * w.stride_x - w.padding_x + in.x * w.dilation_x;
      const bool inside = from_y >= 0 && from_y < w.from_height && from_x >= 0 &&
                          from_x < w.from_width && first + k < rows;
      values[k] = inside ? x[w.From(to.image, from_y, from_x) * w.channels + in.image] : T{};
      const bool row_ends = ++to.x == w.to_width;
      to.x = row_ends ? 0 : to.x;
      to.y += row_ends ? 1 : 0;
      const bool image_ends = to.y == w.to_height;
      to.y = image_ends ? 0 : to.y;
      to.image += image_ends ? 1 : 0;
    }
    T* const out = patches + int64_t{first} * columns + column;
    TESSERA_UNROLL for (int k = 0; k < kRows; ++k) {
      if (first + k < rows) out[int64_t{k} * columns] = values[k];
    }
  }
};

// dx: the sum of those entries of dpatches into whose places it went.
struct SumPatches : OnePhase {
  ImageWindows windows;
  uint32_t items;  // of dx
  uint32_t columns;
  const float* dpatches;
  float* dx;

  int64_t blocks() const { return CeilDiv(items, kThreads); }

  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, Shared&, Own&) const {
    const int64_t item = lane.block * kThreads + lane.thread;
    if (item >= items) return;
    const ImageWindows& w = windows;
    const auto at = static_cast<uint32_t>(item), channels = static_cast<uint32_t>(w.channels);
    const ImageWindows::Place from =
        ImageWindows::PlaceAt(at / channels, w.from_height, w.from_width);
    const float* const first = dpatches + int64_t{at % channels} * w.height * w.width;
    float sum = 0;
    w.ForHolders(from, [&](const ImageWindows::Place& to, int32_t y, int32_t x) {
      const int32_t i = y / w.dilation_y, j = x / w.dilation_x;
      if (i * w.dilation_y != y || j * w.dilation_x != x) return;
      sum += first[w.To(to.image, to.y, to.x) * columns + int64_t{i} * w.width + j];
    });
    dx[item] = sum;
  }
};

}  // namespace tessera::cuda

#endif  // TESSERA_KERNELS_CUDA_CONVOLUTION_KERNELS_H_
