#include "bench/rules/plain_streams.h"

#include "common/base/vector_clones.h"

namespace tessera {
namespace {

// Small enough that sums over a benchmark's rounds stay near where they began.
constexpr float kFactor = 1e-6f;

TESSERA_VECTOR_CLONES
void Streams0(const float* u, const float* w_in, float* w_out, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) w_out[i] = w_in[i] + kFactor * u[i];
}

TESSERA_VECTOR_CLONES
void Streams1(const float* u, const float* w_in, float* w_out, float* __restrict s, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const float x = kFactor * u[i];
    s[i] += x;
    w_out[i] = w_in[i] + x;
  }
}

TESSERA_VECTOR_CLONES
void Streams2(const float* u, const float* w_in, float* w_out, float* __restrict s,
              float* __restrict t, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const float x = kFactor * u[i];
    s[i] += x;
    t[i] += x;
    w_out[i] = w_in[i] + x;
  }
}

}  // namespace

void RunPlainStreams(const float* u, const float* w_in, float* w_out, float* const* state,
                     int state_count, int64_t count) {
  if (state_count == 0) return Streams0(u, w_in, w_out, count);
  if (state_count == 1) return Streams1(u, w_in, w_out, state[0], count);
  Streams2(u, w_in, w_out, state[0], state[1], count);
}

}  // namespace tessera
