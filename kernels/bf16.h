// bfloat16: the upper half of a float. The range of f32 with 8 bits of mantissa.
#ifndef TESSERA_KERNELS_BF16_H_
#define TESSERA_KERNELS_BF16_H_

#include <cstdint>
#include <cstring>

#include "common/base/host_device.h"

namespace tessera {

struct Bf16 {
  uint16_t bits;
};
static_assert(sizeof(Bf16) == 2, "kernels read arrays of it as arrays of 16-bit words");

// Rounding moves a finite value by at most this share of it.
constexpr float kBf16RelativeError = 0x1p-8f;

// Rounds to nearest, ties to even; what is too large becomes infinite and a NaN stays one. Free of branches, so
// that loops over it vectorise.
TESSERA_HOST_DEVICE inline Bf16 RoundToBf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  const uint32_t quiet = bits >> 16 | 0x40u;
  return {static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded)};
}

// The exact value.
TESSERA_HOST_DEVICE inline float Widen(Bf16 value) {
  const uint32_t bits = static_cast<uint32_t>(value.bits) << 16;
  float widened;
  std::memcpy(&widened, &bits, sizeof(widened));
  return widened;
}

}  // namespace tessera

#endif  // TESSERA_KERNELS_BF16_H_
