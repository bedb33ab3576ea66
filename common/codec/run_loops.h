// The arithmetic of the codecs over runs of entries that lie behind each other in memory.
//
// Each loop is written once in plain code, or in instructions where a compiler finds no good ones,
// and exists for every CodecPath; all give the same bits. Bytes may be misaligned.
#ifndef TESSERA_COMMON_CODEC_RUN_LOOPS_H_
#define TESSERA_COMMON_CODEC_RUN_LOOPS_H_

#include <cstdint>

#include "common/codec/path.h"
#include "common/codec/stochastic.h"

namespace tessera {

struct RunLoops {
  // By EntryForm. sum[i] = weight * x[i], or sum[i] += weight * x[i]; a code's x is code * factor.
  using Decode = void (*)(const char* in, int64_t count, float factor, float weight, float* sum);
  Decode assign[4];
  Decode accumulate[4];
  // By EntryForm. A code is x[i] * inverse, rounded to nearest even; |x[i] * inverse| < 2^22.
  using Encode = void (*)(const float* in, int64_t count, float inverse, char* out);
  Encode encode[4];
  // The bits of the largest magnitude. Infinity is above all numbers and NaN above infinity.
  uint32_t (*largest)(const float* in, int64_t count);
  double (*square_sum)(const float* in, int64_t count);
  // Of entries as they are sent, by EntryForm; nullptr for codes.
  using AnyNotFinite = bool (*)(const char* in, int64_t count);
  AnyNotFinite any_not_finite[4];
  // A code is x[i] * inverse, rounded to one of its two neighbours (stochastic.h).
  void (*round_at_random)(const float* in, int64_t count, float inverse, int levels,
                          const BucketRandom& random, int64_t first, int8_t* codes);
  // Codes of `bits` (2 to 7), as signed numbers, to and from bytes: the first of a byte in its
  // lowest bits, BytesOfEntries(count, bits) of them.
  void (*pack)(const int8_t* codes, int64_t count, int bits, char* out);
  void (*unpack)(const char* in, int64_t count, int bits, int8_t* codes);
};

// `path` must be one that the CPU has.
const RunLoops& LoopsOf(CodecPath path);

}  // namespace tessera

#endif  // TESSERA_COMMON_CODEC_RUN_LOOPS_H_
