// bf16 and f16 on the wire: two bytes an entry.
//
//   bf16  sign, 8 bits of exponent, 7 of mantissa: the upper half of an f32
//   f16   sign, 5 bits of exponent, 10 of mantissa (IEEE 754 binary16)
//
// Rounded to nearest, ties to even. A finite value that is too large becomes the largest finite one
// of its sign (65504 in f16); infinite stays infinite and NaN a quiet NaN, so that an arrival check
// still sees them. Widening is exact.
#ifndef TESSERA_COMMON_CODEC_HALF_H_
#define TESSERA_COMMON_CODEC_HALF_H_

#include <cstdint>
#include <cstring>

#include "common/base/host_device.h"

namespace tessera {

// Free of branches, so that loops over these vectorise.
TESSERA_HOST_DEVICE inline uint16_t ToBf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t abs = bits & 0x7fffffffu;
  const uint32_t rounded = (abs + 0x7fffu + (abs >> 16 & 1u)) >> 16;
  const uint32_t finite = rounded > 0x7f7fu ? 0x7f7fu : rounded;
  const uint32_t quiet = abs >> 16 | (abs > 0x7f800000u ? 0x40u : 0u);
  return static_cast<uint16_t>(sign | (abs >= 0x7f800000u ? quiet : finite));
}

TESSERA_HOST_DEVICE inline float FromBf16(uint16_t half) {
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

TESSERA_HOST_DEVICE inline uint16_t ToF16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t abs = bits & 0x7fffffffu;
  // Below 2^-14 the result is a multiple of 2^-24: the sum with 1/2 leaves it in the lowest bits.
  float magnitude;
  std::memcpy(&magnitude, &abs, sizeof(magnitude));
  const float shifted = magnitude + 0.5f;
  uint32_t small;
  std::memcpy(&small, &shifted, sizeof(small));
  small -= 0x3f000000u;
  const uint32_t normal = (abs + 0xfffu + (abs >> 13 & 1u) - (112u << 23)) >> 13;
  const uint32_t finite = abs < 0x38800000u ? small : normal;
  const uint32_t clamped = finite > 0x7bffu ? 0x7bffu : finite;
  const uint32_t quiet = 0x7c00u | (abs > 0x7f800000u ? 0x200u | (abs >> 13 & 0x3ffu) : 0u);
  return static_cast<uint16_t>(sign | (abs >= 0x7f800000u ? quiet : clamped));
}

TESSERA_HOST_DEVICE inline float FromF16(uint16_t half) {
  const uint32_t abs = half & 0x7fffu;
  // A subnormal is its mantissa times 2^-24.
  const float small = static_cast<float>(static_cast<int32_t>(abs)) * 0x1p-24f;
  uint32_t small_bits;
  std::memcpy(&small_bits, &small, sizeof(small_bits));
  const uint32_t normal = (abs << 13) + (112u << 23);
  // All ones stay all ones; a NaN becomes quiet, as the instruction does it.
  const uint32_t special = 0x7f800000u | abs << 13 | (abs > 0x7c00u ? 0x400000u : 0u);
  const uint32_t wide = abs < 0x400u ? small_bits : abs < 0x7c00u ? normal : special;
  const uint32_t bits = wide | static_cast<uint32_t>(half & 0x8000u) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

}  // namespace tessera

#endif  // TESSERA_COMMON_CODEC_HALF_H_
