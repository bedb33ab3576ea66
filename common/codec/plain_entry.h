// Entries that stand by themselves, as they are written: one type for each way, on the CPU and in GPU kernels.
//
//   Code      an unsigned integer that holds the bytes, little-endian
//   kBytes    how many of its lowest bytes are written
//   Of, From  from an entry to its code, and back
//   IsFinite  false where From gives an infinite value or a NaN
#ifndef TESSERA_COMMON_CODEC_PLAIN_ENTRY_H_
#define TESSERA_COMMON_CODEC_PLAIN_ENTRY_H_

#include <cstdint>
#include <cstring>

#include "common/base/host_device.h"
#include "common/codec/half.h"

namespace tessera {

struct AsF32 {
  using Code = uint32_t;
  static constexpr int kBytes = 4;
  TESSERA_HOST_DEVICE static Code Of(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof(bits));
    return bits;
  }
  TESSERA_HOST_DEVICE static float From(Code code) {
    float x;
    std::memcpy(&x, &code, sizeof(x));
    return x;
  }
  static bool IsFinite(Code code) { return (code & 0x7f800000u) != 0x7f800000u; }
};

struct AsBf16 {
  using Code = uint16_t;
  static constexpr int kBytes = 2;
  TESSERA_HOST_DEVICE static Code Of(float x) { return ToBf16(x); }
  TESSERA_HOST_DEVICE static float From(Code code) { return FromBf16(code); }
  static bool IsFinite(Code code) { return (code & 0x7f80u) != 0x7f80u; }
};

struct AsF16 {
  using Code = uint16_t;
  static constexpr int kBytes = 2;
  TESSERA_HOST_DEVICE static Code Of(float x) { return ToF16(x); }
  TESSERA_HOST_DEVICE static float From(Code code) { return FromF16(code); }
  static bool IsFinite(Code code) { return (code & 0x7c00u) != 0x7c00u; }
};

}  // namespace tessera

#endif  // TESSERA_COMMON_CODEC_PLAIN_ENTRY_H_
