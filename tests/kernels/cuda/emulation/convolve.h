// Convolutions by loops in f64, for what takes cuDNN's place. Weights lie channels last.
#ifndef TESSERA_TESTS_KERNELS_CUDA_EMULATION_CONVOLVE_H_
#define TESSERA_TESTS_KERNELS_CUDA_EMULATION_CONVOLVE_H_

#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/cuda/convolution_pass.h"

namespace tessera::cuda {

// To nearest, ties to even, at 10 bits of mantissa.
inline float RoundToTf32(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  if ((bits & 0x7f800000u) == 0x7f800000u) return value;
  bits = (bits + 0xfffu + (bits >> 13 & 1u)) & ~0x1fffu;
  std::memcpy(&value, &bits, sizeof(bits));
  return value;
}

inline void ConvolveInF64(const ConvolutionPass& pass) {
  using Kind = ConvolutionPass::Kind;
  const auto& [kind, tf32, shape, a, b, beta, c] = pass;
  const Image &from = shape.map.from, &to = shape.map.to;
  const Window& w = shape.map.window;
  const int64_t results = kind == Kind::kForward         ? shape.rows * to.size()
                          : kind == Kind::kInputGradient ? shape.rows * from.size()
                                                         : shape.map.weight_size();
  std::vector<double> sums(static_cast<size_t>(results));
  for (int64_t i = 0; i < results; ++i) sums[i] = beta == 0 ? 0.0 : double{beta} * c[i];
  const bool rounds = tf32;
  const auto factor = [rounds](float value) { return double{rounds ? RoundToTf32(value) : value}; };
  for (int64_t n = 0; n < shape.rows; ++n) {
    for (int64_t p = 0; p < to.positions(); ++p) {
      for (int64_t s = 0; s < w.size(); ++s) {
        const int64_t y = p / to.width * w.stride_y - w.padding_y + s / w.width * w.dilation_y;
        const int64_t x = p % to.width * w.stride_x - w.padding_x + s % w.width * w.dilation_x;
        if (y < 0 || y >= from.height || x < 0 || x >= from.width) continue;
        const int64_t place = ((n * from.height + y) * from.width + x) * from.channels;
        const int64_t out = (n * to.positions() + p) * to.channels;
        for (int64_t o = 0; o < to.channels; ++o) {
          const int64_t channels = shape.map.group_channels();
          const int64_t weight = (o * w.size() + s) * channels;
          const int64_t in = place + o / (to.channels / shape.map.groups) * channels;
          for (int64_t i = 0; i < channels; ++i) {
            switch (kind) {
              case Kind::kForward:
                sums[out + o] += factor(a[in + i]) * factor(b[weight + i]);
                break;
              case Kind::kWeightGradient:
                sums[weight + i] += factor(a[in + i]) * factor(b[out + o]);
                break;
              case Kind::kInputGradient:
                sums[in + i] += factor(a[out + o]) * factor(b[weight + i]);
                break;
            }
          }
        }
      }
    }
  }
  for (int64_t i = 0; i < results; ++i) c[i] = static_cast<float>(sums[i]);
}

}  // namespace tessera::cuda

#endif  // TESSERA_TESTS_KERNELS_CUDA_EMULATION_CONVOLVE_H_
