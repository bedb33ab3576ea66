// Rounding to one of two neighbours with the probability that keeps the mean.
//
// x = |v| * inverse, at most `levels`, becomes floor(x) or that plus one, the latter with
// probability x - floor(x); then it takes the sign of v.
//
// An entry needs 16 random bits, and where these do not decide (once in 65536) 32 more, so the mean is
// kept to 2^-48:
//   entry i of a bucket, in group g = i / 128 at place j = i mod 128:
//     word   Philox(seed, kRounding, a, bucket << 24 | (16 g + j mod 16))[j / 32]
//     r      its lower half where j / 16 is even, else its upper half
//     more   Philox(seed, kRoundingMore, a, bucket << 24 | i)[0]
//   t = floor(65536 (x - floor(x))), rest = 65536 (x - floor(x)) - t
//   up     if r < t, or if r = t and more < rest * 2^32
// A group of 16 blocks side by side is what AVX-512 computes at a time.
#ifndef TESSERA_COMMON_CODEC_STOCHASTIC_H_
#define TESSERA_COMMON_CODEC_STOCHASTIC_H_

#include <cstdint>

#include "common/base/ids.h"

namespace tessera {

// Entries whose random bits are computed together.
constexpr int64_t kRandomGroup = 128;

// Whose random numbers: no two payloads of a job share any, and everyone can repeat them.
struct PayloadRandom {
  uint64_t seed = 0;
  uint64_t a = 0;  // Philox's

  // The random numbers of `worker`'s push to `shard` in `exchange`.
  static PayloadRandom OfPush(uint64_t seed, Rank worker, Exchange exchange, ShardId shard);
  // The random numbers of `shard`'s values at `version`: all readers of a version read the same values.
  static PayloadRandom OfValues(uint64_t seed, Version version, ShardId shard);
};

// Names the random numbers of one bucket of a payload.
struct BucketRandom {
  PayloadRandom payload;
  uint64_t bucket = 0;
};

// Rounds in[0, count) to codes. in[0] is the bucket's entry `first`, a multiple of kRandomGroup.
// Entries must be finite, `levels` in [1, 127].
void RoundAtRandomScalar(const float* in, int64_t count, float inverse, int levels,
                         const BucketRandom& random, int64_t first, int8_t* codes);
void RoundAtRandomAvx2(const float* in, int64_t count, float inverse, int levels,
                       const BucketRandom& random, int64_t first, int8_t* codes);
void RoundAtRandomAvx512(const float* in, int64_t count, float inverse, int levels,
                         const BucketRandom& random, int64_t first, int8_t* codes);

}  // namespace tessera

#endif  // TESSERA_COMMON_CODEC_STOCHASTIC_H_
