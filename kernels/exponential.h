// exp of floats, and sums of log(1 + exp), without branches: they vectorise, and give the same bits on
// every CPU, which the C library's do not promise. On a GPU exp is half as many instructions, with its own
// power of two, and here and there another last bit.
#ifndef TESSERA_KERNELS_EXPONENTIAL_H_
#define TESSERA_KERNELS_EXPONENTIAL_H_

#include <cstdint>
#include <cstring>

#include "common/base/host_device.h"

namespace tessera {

// exp(x) for x <= 0, within 2 units in the last place; 0 below -87. NaN stays NaN.
//
// x = k ln 2 + r with |r| <= ln 2 / 2; exp(r) by its Taylor polynomial of degree 7, whose next term
// is below 2^-27; then the exponent grows by k. On a GPU exp(r) is 2^(r / ln 2) by its own instruction,
// as in CUDA's expf.
TESSERA_HOST_DEVICE inline __attribute__((always_inline)) float FastExp(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  constexpr float kLog2E = 1.44269504088896341f;
  float p, rounded;
#ifdef __CUDA_ARCH__
  rounded = __fmaf_rn(x, kLog2E, kRound);
  const float k = rounded - kRound;
  // What kLog2E, a float, lacks of log2(e).
  const float r = __fmaf_rn(x, 1.92596299e-8f, __fmaf_rn(x, kLog2E, -k));
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(p) : "f"(r));
#else
  const float bounded = x < -87.0f ? -87.0f : x;
  rounded = bounded * kLog2E + kRound;
  const float k = rounded - kRound;
  // ln 2 in two parts, the first with zeros at its end, so that k times it is exact.
  const float r = k * 2.12194440e-4f + (k * -0.693359375f + bounded);
  p = 1.0f / 5040.0f;
  p = p * r + 1.0f / 720.0f;
  p = p * r + 1.0f / 120.0f;
  p = p * r + 1.0f / 24.0f;
  p = p * r + 1.0f / 6.0f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
#endif
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

// Grows the product of 1 + e for a few e, less 1, in f32 and with half of the instructions that AddSoftplus takes.
// `above_one` begins with 0; each step has a relative error of two roundings. AddGrown takes the result up.
TESSERA_HOST_DEVICE inline float GrowByOnePlus(float e, float above_one) {
#ifdef __CUDA_ARCH__
  return __fmaf_rn(above_one, e, above_one) + e;
#else
  return (above_one * e + above_one) + e;
#endif
}
TESSERA_HOST_DEVICE inline void AddGrown(float above_one, double* sum, double* product) {
  const bool small = above_one < 0x1p-24f;
  *sum += static_cast<double>(small ? above_one : 0.0f);
  *product *= 1.0 + static_cast<double>(small ? 0.0f : above_one);
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
