#include "common/codec/error_feedback.h"

#include <algorithm>

#include "common/base/check.h"

namespace tessera {
namespace {

// Entries that are coded at a time where buckets have no headers.
constexpr int64_t kTile = 4096;

}  // namespace

Encoder::Step FeedbackEncoder::Encode(const float* entries, int64_t count, char* out,
                                      int64_t room) {
  Encoder::Step all;
  while (all.entries < count) {
    const Encoder::Ahead ahead = encoder_.ahead();
    const int64_t left = count - all.entries;
    TESSERA_CHECK(ahead.entries > 0 && (!ahead.whole || ahead.entries <= left));
    const int64_t size = ahead.whole ? ahead.entries : std::min({ahead.entries, left, kTile});
    if (static_cast<int64_t>(sum_.size()) < size) {
      sum_.resize(size);
      decoded_.resize(size);
    }
    residual_.Read(size, sum_.data());
    for (int64_t i = 0; i < size; ++i) sum_[i] += entries[all.entries + i];
    const Encoder::Step step =
        encoder_.Encode(sum_.data(), size, out + all.bytes, room - all.bytes, decoded_.data());
    for (int64_t i = 0; i < step.entries; ++i) sum_[i] -= decoded_[i];
    residual_.Write(step.entries, sum_.data());
    all.entries += step.entries;
    all.bytes += step.bytes;
    if (step.entries < size) break;
  }
  return all;
}

}  // namespace tessera
