// Random numbers that two machines must agree on: Philox 4x32-10.
//
// Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011.
//
// A number is a pure function of (seed, stream, a, b), so that anyone can compute any of them in
// any order:
//   key      (seed & 0xffffffff, seed >> 32)
//   counter  (b & 0xffffffff, b >> 32, a & 0xffffffff, stream << 24 | (a >> 32 & 0xffffff))
// b has 64 bits and a has 56. docs/methods.md lists what each stream puts into a and b, with test
// vectors.
#ifndef TESSERA_COMMON_BASE_PHILOX_H_
#define TESSERA_COMMON_BASE_PHILOX_H_

#include <array>
#include <cstdint>

#include "common/base/host_device.h"

namespace tessera {

// Numbers of different streams never meet.
enum class Stream : uint32_t {
  kInitialValues = 1,  // a = parameter index, b = row * ceil(columns / 4) + column / 4
  kDataOrder =
      2,  // a = epoch | (rank + 1) << 32 for an order of one's own (rank part 0: shared), b = row
  kCalibration = 3,   // a = 0, b = row
  kDropout = 4,       // a = step, b = rank << 48 | layer << 40 | element / 4
  kSubnet = 5,        // a = round | group << 40, b = neuron
  kRounding = 6,      // a = exchange or version mod 2^32 | rank << 32 | shard << 48,
                      // b = bucket << 24 | block (common/codec/stochastic.h)
  kRoundingMore = 7,  // the same, b = bucket << 24 | entry
  kExplorer = 8,      // a = exchange mod 2^32 | rank << 32 | shard << 48, b = draw / 2
                      // (common/keyset/explorer.h)
  kAugment = 9,       // a = epoch, b = row | attempt << 32 (worker/data/augmentation.h)
  kTokenShift = 10,   // a = epoch, b = 0 (worker/data/token_windows.h)
  kSample = 11,       // a = 0, b = number of the token that is drawn, from 0 (tessera sample)
};

using PhiloxBlock = std::array<uint32_t, 4>;

namespace philox_internal {

TESSERA_HOST_DEVICE inline PhiloxBlock Rounds(PhiloxBlock c, uint32_t k0, uint32_t k1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

}  // namespace philox_internal

// Four uniform 32-bit numbers.
TESSERA_HOST_DEVICE inline PhiloxBlock Philox(uint64_t seed, Stream stream, uint64_t a,
                                              uint64_t b) {
  return philox_internal::Rounds(
      {static_cast<uint32_t>(b), static_cast<uint32_t>(b >> 32), static_cast<uint32_t>(a),
       static_cast<uint32_t>(stream) << 24 | (static_cast<uint32_t>(a >> 32) & 0xffffffu)},
      static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
}

// A float in [0, 1), a multiple of 2^-24: exact in a float.
TESSERA_HOST_DEVICE inline float UnitFloat(uint32_t bits) {
  return static_cast<float>(bits >> 8) * 0x1p-24f;
}

}  // namespace tessera

#endif  // TESSERA_COMMON_BASE_PHILOX_H_
