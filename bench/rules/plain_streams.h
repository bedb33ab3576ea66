// The limit that a rule is measured against: a loop that reads and writes the same arrays, with one
// product and one sum for each that it writes.
#ifndef TESSERA_BENCH_RULES_PLAIN_STREAMS_H_
#define TESSERA_BENCH_RULES_PLAIN_STREAMS_H_

#include <cstdint>

namespace tessera {

// w_out = w_in + a u, and s += a u for each of `state_count` (0, 1 or 2) arrays. w_out may be w_in.
void RunPlainStreams(const float* u, const float* w_in, float* w_out, float* const* state,
                     int state_count, int64_t count);

}  // namespace tessera

#endif  // TESSERA_BENCH_RULES_PLAIN_STREAMS_H_
