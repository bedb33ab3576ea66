// The limit that a codec is measured against: a loop that reads and writes as many bytes of as many
// arrays, with next to no arithmetic.
#ifndef TESSERA_BENCH_CODECS_PLAIN_COPIES_H_
#define TESSERA_BENCH_CODECS_PLAIN_COPIES_H_

#include <cstdint>

namespace tessera {

// For `count` entries: reads 4 bytes of `in` and `bytes` (4, 2 or 1) of `narrow`, or writes them.
void Narrow(const float* in, int64_t count, int bytes, char* narrow);
void Widen(const char* narrow, int64_t count, int bytes, float* out);
// Widen onto what `sum` has: reads it as well.
void WidenOnto(const char* narrow, int64_t count, int bytes, float* sum);
// Narrow (2 or 1 bytes) of the sum of `in` and `held`, which becomes that sum: reads both, writes two arrays.
void NarrowSum(const float* in, int64_t count, int bytes, float* held, char* narrow);
// Reads two arrays and writes one of them.
void AddOnto(const float* in, int64_t count, float* sum);

}  // namespace tessera

#endif  // TESSERA_BENCH_CODECS_PLAIN_COPIES_H_
