// Powers of positive floats, without branches: they vectorise, and give the same bits on every CPU and GPU, which the C
// library's do not promise.
#ifndef TESSERA_KERNELS_POWER_H_
#define TESSERA_KERNELS_POWER_H_

#include <cstdint>
#include <cstring>

#include "common/base/host_device.h"

namespace tessera {

// x^exponent for x > 0 and |exponent log(x)| < 700, within two roundings of f32; beyond that 0 or infinity, as far as
// f32 has such values. NaN stays NaN.
//
// log(x) = e ln 2 + log(m) with m in [sqrt(1/2), sqrt(2)], by the series of 2 artanh((m - 1) / (m + 1)) up to its 13th
// power, and exp by its Taylor polynomial of degree 9: both are within 1e-11.
TESSERA_HOST_DEVICE inline __attribute__((always_inline)) float PowerOf(float x, double exponent) {
  constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer
  constexpr double kLn2 = 0.693147180559945309, kLog2E = 1.44269504088896341;
  constexpr double kRootTwo = 1.41421356237309505;
  const double value = static_cast<double>(x);
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  const auto power = static_cast<double>(static_cast<int32_t>(bits >> 52) - 1023);
  bits = (bits & 0xfffffffffffffu) | uint64_t{1023} << 52;
  double m;
  std::memcpy(&m, &bits, sizeof(m));
  const bool halves = m > kRootTwo;
  m = halves ? 0.5 * m : m;
  const double t = (m - 1.0) / (m + 1.0);
  const double t2 = t * t;
  double series = 1.0 / 13.0;
  series = series * t2 + 1.0 / 11.0;
  series = series * t2 + 1.0 / 9.0;
  series = series * t2 + 1.0 / 7.0;
  series = series * t2 + 1.0 / 5.0;
  series = series * t2 + 1.0 / 3.0;
  series = series * t2 + 1.0;
  const double log = (halves ? power + 1.0 : power) * kLn2 + 2.0 * t * series;
  double y = exponent * log;
  y = y < -700.0 ? -700.0 : y;
  y = y > 700.0 ? 700.0 : y;
  const double rounded = y * kLog2E + kRound;
  const double r = y - (rounded - kRound) * kLn2;
  double p = 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  // The lowest bits of `rounded` are the power of two, those of kRound 0.
  std::memcpy(&bits, &rounded, sizeof(bits));
  bits = (bits + 1023u) << 52;
  double scale;
  std::memcpy(&scale, &bits, sizeof(scale));
  const auto result = static_cast<float>(p * scale);
  return x != x ? x : result;
}

}  // namespace tessera

#endif  // TESSERA_KERNELS_POWER_H_
