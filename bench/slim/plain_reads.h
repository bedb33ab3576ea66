// The limit that a selection is measured against: a loop that reads as many bytes.
#ifndef TESSERA_BENCH_SLIM_PLAIN_READS_H_
#define TESSERA_BENCH_SLIM_PLAIN_READS_H_

#include <cstdint>

namespace tessera {

// Reads all of them, and returns something that depends on each.
uint64_t ReadAll(const float* x, int64_t count);

}  // namespace tessera

#endif  // TESSERA_BENCH_SLIM_PLAIN_READS_H_
