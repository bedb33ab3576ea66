// The arithmetic of buckets with headers, whose entries are codes: what int8 and qsgd are made of.
//
// Each loop is written once in plain code, or in instructions where a compiler finds no good ones, and exists for every
// CodecPath; all give the same bits. Bytes may be misaligned.
#ifndef TESSERA_COMMON_CODEC_BUCKET_LOOPS_H_
#define TESSERA_COMMON_CODEC_BUCKET_LOOPS_H_

#include <cstdint>

#include "common/codec/entry_form.h"
#include "common/codec/path.h"
#include "common/codec/stochastic.h"

namespace tessera {

// Reads codes that are bytes, by CodecPath.
extern const EntryLoops kCodeLoops[kCodecPaths];

struct BucketLoops {
  // A code is x[i] * inverse, rounded to nearest even; |x[i] * inverse| < 2^22.
  void (*round_to_nearest)(const float* in, int64_t count, float inverse, char* codes);
  // The bits of the largest magnitude. Infinity is above all numbers and NaN above infinity.
  uint32_t (*largest)(const float* in, int64_t count);
  double (*square_sum)(const float* in, int64_t count);
  // A code is x[i] * inverse, rounded to one of its two neighbours (stochastic.h).
  void (*round_at_random)(const float* in, int64_t count, float inverse, int levels,
                          const BucketRandom& random, int64_t first, int8_t* codes);
  // Codes of `bits` (2 to 7), as signed numbers, to and from bytes: the first of a byte in its
  // lowest bits, BytesOfEntries(count, bits) of them.
  void (*pack)(const int8_t* codes, int64_t count, int bits, char* out);
  void (*unpack)(const char* in, int64_t count, int bits, int8_t* codes);
};

// `path` must be one that the CPU has.
const BucketLoops& BucketLoopsOf(CodecPath path);

}  // namespace tessera

#endif  // TESSERA_COMMON_CODEC_BUCKET_LOOPS_H_
