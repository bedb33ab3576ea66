#include "common/codec/error_feedback.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/base/vector_clones.h"

namespace tessera {
namespace {

// Entries that are coded at a time where buckets have no headers.
constexpr int64_t kEntriesAhead = 4096;

TESSERA_VECTOR_CLONES
void AddOnto(const float* __restrict from, int64_t count, float* __restrict to) {
  for (int64_t i = 0; i < count; ++i) to[i] += from[i];
}

TESSERA_VECTOR_CLONES
void TakeOff(const float* __restrict from, int64_t count, float* __restrict to) {
  for (int64_t i = 0; i < count; ++i) to[i] -= from[i];
}

}  // namespace

Encoder::Step FeedbackEncoder::Encode(const float* entries, int64_t count, char* out,
                                      int64_t room) {
  Encoder::Step all;
  while (all.entries < count) {
    const Encoder::Ahead ahead = encoder_.ahead();
    const int64_t left = count - all.entries;
    TESSERA_CHECK(ahead.entries > 0 && (!ahead.whole || ahead.entries <= left));
    const int64_t size =
        ahead.whole ? ahead.entries : std::min({ahead.entries, left, kEntriesAhead});
    // Buffers grow to the largest bucket or tile and are kept, as a push has thousands of these.
    if (static_cast<int64_t>(sum_.size()) < size) {
      sum_.resize(size);
      decoded_.resize(size);
    }
    // Seide et al. (2014) and Karimireddy et al. (2019): the sum of entry and residual is coded, and what the code
    // loses of it becomes the residual.
    residual_.Read(size, sum_.data());
    AddOnto(entries + all.entries, size, sum_.data());
    const Encoder::Step step =
        encoder_.Encode(sum_.data(), size, out + all.bytes, room - all.bytes, decoded_.data());
    TakeOff(decoded_.data(), step.entries, sum_.data());
    residual_.Write(step.entries, sum_.data());
    all.entries += step.entries;
    all.bytes += step.bytes;
    // There was no room for a whole tile; what was not coded still has its residual.
    if (step.entries < size) break;
  }
  return all;
}

}  // namespace tessera
