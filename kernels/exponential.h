// exp and log(1 + e) of floats, as loops without branches: they vectorise, and give the same bits
// on every CPU and GPU, which the C library's do not promise.
#ifndef TESSERA_KERNELS_EXPONENTIAL_H_
#define TESSERA_KERNELS_EXPONENTIAL_H_

#include <cstdint>
#include <cstring>

#include "common/base/host_device.h"

namespace tessera {

// exp(x) for x <= 88, within 2 units in the last place; 0 below -87. NaN stays NaN.
//
// x = k ln 2 + r with |r| <= ln 2 / 2; exp(r) by its Taylor polynomial of degree 7, whose next term
// is below 2^-27; then the exponent grows by k.
TESSERA_HOST_DEVICE inline __attribute__((always_inline)) float FastExp(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float bounded = x < -87.0f ? -87.0f : (x > 88.0f ? 88.0f : x);
  const float rounded = bounded * 1.44269504088896341f + kRound;
  const float k = rounded - kRound;
  // ln 2 in two parts, the first with zeros at its end, so that k times it is exact.
  const float r = (bounded - k * 0.693359375f) - k * -2.12194440e-4f;
  float p = 1.0f / 5040.0f;
  p = p * r + 1.0f / 720.0f;
  p = p * r + 1.0f / 120.0f;
  p = p * r + 1.0f / 24.0f;
  p = p * r + 1.0f / 6.0f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  // The lowest bits of `rounded` are k, those of kRound 0. Of a NaN p is one, whatever its power.
  uint32_t bits;
  std::memcpy(&bits, &rounded, sizeof(bits));
  bits = (bits + 127u) << 23;
  float power;
  std::memcpy(&power, &bits, sizeof(power));
  return x < -87.0f ? 0.0f : p * power;
}

// log(1 + e) for e in [0, 1], to a few units in the last place: 2 atanh(s) with s = e / (2 + e) <=
// 1/3, whose series is cut at s^17 / 17 < 2^-31.
TESSERA_HOST_DEVICE inline __attribute__((always_inline)) float FastLog1p(float e) {
  const float s = e / (2.0f + e);
  const float q = s * s;
  float p = 1.0f / 15.0f;
  p = p * q + 1.0f / 13.0f;
  p = p * q + 1.0f / 11.0f;
  p = p * q + 1.0f / 9.0f;
  p = p * q + 1.0f / 7.0f;
  p = p * q + 1.0f / 5.0f;
  p = p * q + 1.0f / 3.0f;
  p = p * q + 1.0f;
  return 2.0f * s * p;
}

}  // namespace tessera

#endif  // TESSERA_KERNELS_EXPONENTIAL_H_
