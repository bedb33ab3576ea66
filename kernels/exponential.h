// exp of floats, and sums of log(1 + exp), without branches: they vectorise, and give the same bits on
// every CPU, which the C library's do not promise. On a GPU they are made of fused multiply-adds: half as
// many instructions, and here and there another last bit.
#ifndef TESSERA_KERNELS_EXPONENTIAL_H_
#define TESSERA_KERNELS_EXPONENTIAL_H_

#include <cstdint>
#include <cstring>

#include "common/base/host_device.h"

namespace tessera {

// a b + c, rounded once on a GPU and twice on a CPU.
TESSERA_HOST_DEVICE inline __attribute__((always_inline)) float MultiplyAdd(float a, float b,
                                                                            float c) {
#ifdef __CUDA_ARCH__
  return __fmaf_rn(a, b, c);
#else
  return a * b + c;
#endif
}

// exp(x) for x <= 0, within 2 units in the last place; 0 below -87. NaN stays NaN.
//
// x = k ln 2 + r with |r| <= ln 2 / 2; exp(r) by its Taylor polynomial of degree 7, whose next term
// is below 2^-27; then the exponent grows by k.
TESSERA_HOST_DEVICE inline __attribute__((always_inline)) float FastExp(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float bounded = x < -87.0f ? -87.0f : x;
  const float rounded = MultiplyAdd(bounded, 1.44269504088896341f, kRound);
  const float k = rounded - kRound;
  // ln 2 in two parts, the first with zeros at its end, so that k times it is exact.
  const float r = MultiplyAdd(k, 2.12194440e-4f, MultiplyAdd(k, -0.693359375f, bounded));
  float p = 1.0f / 5040.0f;
  p = MultiplyAdd(p, r, 1.0f / 720.0f);
  p = MultiplyAdd(p, r, 1.0f / 120.0f);
  p = MultiplyAdd(p, r, 1.0f / 24.0f);
  p = MultiplyAdd(p, r, 1.0f / 6.0f);
  p = MultiplyAdd(p, r, 0.5f);
  p = MultiplyAdd(p, r, 1.0f);
  p = MultiplyAdd(p, r, 1.0f);
  // The lowest bits of `rounded` are k, those of kRound 0. Of a NaN p is one, whatever its power.
  uint32_t bits;
  std::memcpy(&bits, &rounded, sizeof(bits));
  bits = (bits + 127u) << 23;
  float power;
  std::memcpy(&power, &bits, sizeof(power));
  return x < -87.0f ? 0.0f : p * power;
}

// Adds log(1 + exp(z)) = max(z, 0) + log(1 + e), where e = exp(-|z|), to sum + log(product): the logarithms of many
// are taken at once. They begin with 0 and 1.
//
// Of e below 2^-24, log(1 + e) is e within 2^-25 of itself; a product would lose it. Above, 1 + e is exact. The
// product at most doubles.
TESSERA_HOST_DEVICE inline __attribute__((always_inline)) void AddSoftplus(float z, float e,
                                                                           double* sum,
                                                                           double* product) {
  const bool small = e < 0x1p-24f;
  *sum += static_cast<double>((z < 0.0f ? 0.0f : z) + (small ? e : 0.0f));
  *product *= 1.0 + static_cast<double>(small ? 0.0f : e);
}

// Leaves a product in [1, 2): the logarithm of its power of two goes into the sum. Of a product that is finite, or
// of a sum that is NaN.
TESSERA_HOST_DEVICE inline __attribute__((always_inline)) void MovePower(double* sum,
                                                                         double* product) {
  constexpr double kLn2 = 0.693147180559945309;
  uint64_t bits;
  std::memcpy(&bits, product, sizeof(bits));
  const auto power = static_cast<int32_t>(bits >> 52) - 1023;
  bits = (bits & 0xfffffffffffffu) | uint64_t{1023} << 52;
  *sum += static_cast<double>(power) * kLn2;
  std::memcpy(product, &bits, sizeof(bits));
}

}  // namespace tessera

#endif  // TESSERA_KERNELS_EXPONENTIAL_H_
