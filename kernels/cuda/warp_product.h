// Products of small bf16 matrices by tensor cores: the 32 threads of a warp multiply [16, 16] by [16, 8] together, and
// each has some entries of factors and sums in registers (PTX ISA 9.0, mma.m16n8k16 with .bf16; compute capability
// 8.0).
//
// Thread t of a warp has, with g = t / 4 and q = t % 4,
//   of the left factor   rows g (v[0], v[2]) and g + 8 (v[1], v[3]); columns 2q and 2q + 1 (v[0], v[1]), and those 8
//                        further (v[2], v[3]), two in a word, the lower one first
//   of the right factor  column g; rows 2q and 2q + 1 (v[0]), and those 8 further (v[1])
//   of the sums          row g (v[0], v[1]) and row g + 8 (v[2], v[3]); columns 2q and 2q + 1
#ifndef TESSERA_KERNELS_CUDA_WARP_PRODUCT_H_
#define TESSERA_KERNELS_CUDA_WARP_PRODUCT_H_

#include <cstdint>

#include "common/base/host_device.h"
#include "kernels/bf16.h"

namespace tessera::cuda {

struct LeftFactor {
  uint32_t v[4];
};
struct RightFactor {
  uint32_t v[2];
};
struct ProductSums {
  float v[4];
};

// Both rounded to bf16, ties to even, `first` in the lower half.
TESSERA_HOST_DEVICE inline uint32_t PackBf16(float first, float second) {
#ifdef __CUDA_ARCH__
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(second), "f"(first));
  return packed;
#else
  return RoundToBf16(first).bits | static_cast<uint32_t>(RoundToBf16(second).bits) << 16;
#endif
}

#ifdef __CUDA_ARCH__
// sums += left right, of the warp's 32 threads.
__device__ __forceinline__ void MultiplyByWarp(const LeftFactor& left, const RightFactor& right,
                                               ProductSums* sums) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums->v[0]), "+f"(sums->v[1]), "+f"(sums->v[2]), "+f"(sums->v[3])
      : "r"(left.v[0]), "r"(left.v[1]), "r"(left.v[2]), "r"(left.v[3]), "r"(right.v[0]),
        "r"(right.v[1]));
}
#else
// What a GPU computes for one thread, from the factors of all 32.
inline ProductSums ProductOfThread(const LeftFactor* const (&left)[32],
                                   const RightFactor* const (&right)[32], int thread,
                                   const ProductSums& sums) {
  const auto half = [](uint32_t word, int k) {
    return Widen(Bf16{static_cast<uint16_t>(word >> 16 * k)});
  };
  ProductSums result = sums;
  for (int i = 0; i < 4; ++i) {
    const int row = thread / 4, is_below = i / 2, column = 2 * (thread % 4) + i % 2;
    for (int k = 0; k < 16; ++k) {
      const int q = k % 8 / 2, further = k / 8;
      const float a = half(left[4 * row + q]->v[is_below + 2 * further], k % 2);
      const float b = half(right[4 * column + q]->v[further], k % 2);
      result.v[i] += a * b;
    }
  }
  return result;
}
#endif

}  // namespace tessera::cuda

#endif  // TESSERA_KERNELS_CUDA_WARP_PRODUCT_H_
