// One entry rounded to one of its two neighbours (stochastic.h), on the CPU and in GPU kernels.
#ifndef TESSERA_COMMON_CODEC_STOCHASTIC_ENTRY_H_
#define TESSERA_COMMON_CODEC_STOCHASTIC_ENTRY_H_

#include <cmath>
#include <cstdint>
#include <cstring>

#include "common/base/host_device.h"
#include "common/base/philox.h"
#include "common/codec/stochastic.h"

namespace tessera {

// Blocks of a group: block l has the words of its entries l, l + 16, ...
constexpr int64_t kRandomLanes = 16;

TESSERA_HOST_DEVICE inline uint64_t RoundingB(const BucketRandom& random, int64_t within) {
  return random.bucket << 24 | static_cast<uint64_t>(within);
}

// The words of the entries lane, lane + 16, ... of group `group` of the bucket.
TESSERA_HOST_DEVICE inline PhiloxBlock RoundingWords(const BucketRandom& random, int64_t group,
                                                     int64_t lane) {
  return Philox(random.payload.seed, Stream::kRounding, random.payload.a,
                RoundingB(random, group * kRandomLanes + lane));
}

// r and t are equal: is it up?
TESSERA_HOST_DEVICE inline bool MoreIsUp(const BucketRandom& random, int64_t entry, float rest) {
  const uint32_t more = Philox(random.payload.seed, Stream::kRoundingMore, random.payload.a,
                               RoundingB(random, entry))[0];
  return static_cast<double>(more) < static_cast<double>(rest) * 0x1p32;
}

struct RoundingSplit {
  int32_t whole = 0;
  int32_t t = 0;
  float rest = 0;
};

TESSERA_HOST_DEVICE inline RoundingSplit SplitOf(float v, float inverse, float levels) {
  const float scaled = std::fabs(v) * inverse;
  const float x = levels < scaled ? levels : scaled;
  RoundingSplit split;
  split.whole = static_cast<int32_t>(x);
  const float fraction = (x - static_cast<float>(split.whole)) * 65536.0f;
  split.t = static_cast<int32_t>(fraction);
  split.rest = fraction - static_cast<float>(split.t);
  return split;
}

TESSERA_HOST_DEVICE inline int8_t Signed(float v, int32_t magnitude) {
  uint32_t bits;
  std::memcpy(&bits, &v, sizeof(bits));
  return static_cast<int8_t>((bits >> 31) != 0 ? -magnitude : magnitude);
}

// Entry number `entry` of its bucket, whose word is `word` of its block: words[half / 2] >> 16 * (half
// % 2) with half = entry % 128 / 16.
TESSERA_HOST_DEVICE inline int8_t RoundedAtRandom(float v, float inverse, float levels,
                                                  const PhiloxBlock& words, int half,
                                                  const BucketRandom& random, int64_t entry) {
  const int32_t r = static_cast<int32_t>(words[half / 2] >> 16 * (half % 2) & 0xffff);
  const RoundingSplit s = SplitOf(v, inverse, levels);
  const bool up = r < s.t || (r == s.t && MoreIsUp(random, entry, s.rest));
  return Signed(v, s.whole + (up ? 1 : 0));
}

}  // namespace tessera

#endif  // TESSERA_COMMON_CODEC_STOCHASTIC_ENTRY_H_
