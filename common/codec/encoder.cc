#include "common/codec/encoder.h"

#include <algorithm>
#include <cstring>

#include "common/base/check.h"
#include "common/codec/bucket_scale.h"

namespace tessera {
namespace {

constexpr int64_t kHeaderBytes = 4;
// Codes that are packed at a time: whole groups, small enough for the stack.
constexpr int64_t kTile = 8 * kRandomGroup;

static_assert(Encoder::kRoomMin >= kHeaderBytes + kRandomGroup);

}  // namespace

Encoder::Encoder(const CodedKeys& keys, const PayloadRandom& random, CodecPath path)
    : keys_(keys), random_(random), loops_(LoopsOf(path)), left_(keys.bytes()) {
  if (!keys.stretches().empty()) bucket_ = keys.stretches().front().first_bucket;
}

Encoder::Ahead Encoder::ahead() const {
  if (stretch_ == keys_.stretches().size()) return {};
  const Stretch& s = keys_.stretches()[stretch_];
  return {s.BucketAt(done_ - bucket_done_) - (s.has_headers() ? bucket_done_ : 0), s.has_headers()};
}

Encoder::Step Encoder::Encode(const float* entries, int64_t count, char* out, int64_t room,
                              float* decoded) {
  Step all;
  while (all.entries < count) {
    TESSERA_CHECK(stretch_ < keys_.stretches().size());
    const bool has_headers = keys_.stretches()[stretch_].has_headers();
    const Step step = (this->*(has_headers ? &Encoder::EncodeBucket : &Encoder::EncodePlain))(
        entries + all.entries, count - all.entries, out + all.bytes, room - all.bytes,
        decoded == nullptr ? nullptr : decoded + all.entries);
    // A bucket of the shortest kind is a header with its codes: no step writes a header alone.
    if (step.entries == 0) break;
    all.entries += step.entries;
    all.bytes += step.bytes;
    left_ -= step.bytes;
    Advance(step.entries);
  }
  return all;
}

Encoder::Step Encoder::EncodePlain(const float* entries, int64_t count, char* out, int64_t room,
                                   float* decoded) {
  const Stretch& s = keys_.stretches()[stretch_];
  const int64_t entry_bytes = s.bits / 8;
  const int64_t taken = std::min({count, s.entries - done_, room / entry_bytes});
  const int form = static_cast<int>(s.form);
  if (taken == 0) return {};
  loops_.encode[form](entries, taken, 0, out);
  if (decoded != nullptr) loops_.assign[form](out, taken, 1, 1, decoded);
  return {taken, taken * entry_bytes};
}

void Encoder::BeginBucket(const float* entries, char* header) {
  const Stretch& s = keys_.stretches()[stretch_];
  const Codec& codec = keys_.codec();
  const BucketScale scale = BucketScaleOf(
      codec.kind == CodecKind::kInt8, s.divisor, loops_.largest(entries, bucket_size_),
      codec.l2_norm ? loops_.square_sum(entries, bucket_size_) : -1.0);
  inverse_ = scale.inverse;
  factor_ = scale.factor;
  std::memcpy(header, &scale.header, kHeaderBytes);
}

Encoder::Step Encoder::EncodeBucket(const float* entries, int64_t count, char* out, int64_t room,
                                    float* decoded) {
  const Stretch& s = keys_.stretches()[stretch_];
  const int64_t size = s.BucketAt(done_ - bucket_done_);
  const bool begins = bucket_size_ == 0;
  const int64_t head = begins ? kHeaderBytes : 0;
  int64_t taken = size - bucket_done_;
  TESSERA_CHECK(count >= taken);
  if (head + BytesOfEntries(taken, s.bits) > room) {
    taken = std::max<int64_t>(0, (room - head) * 8 / s.bits) / kRandomGroup * kRandomGroup;
    taken = std::min(taken, (size - bucket_done_) / kRandomGroup * kRandomGroup);
  }
  if (taken == 0) return {};
  if (begins) {
    bucket_size_ = size;
    BeginBucket(entries, out);
  }
  char* const codes_out = out + head;
  const int64_t bytes = BytesOfEntries(taken, s.bits);
  const bool nearest = keys_.codec().kind == CodecKind::kInt8;
  if (inverse_ == 0) {
    std::memset(codes_out, 0, bytes);
    if (decoded != nullptr) std::fill_n(decoded, taken, UncodedEntry({0, 0, factor_}));
  } else if (nearest) {
    loops_.encode[static_cast<int>(EntryForm::kCode)](entries, taken, inverse_, codes_out);
    if (decoded != nullptr) {
      loops_.assign[static_cast<int>(s.form)](codes_out, taken, factor_, 1, decoded);
    }
  } else {
    const BucketRandom random{random_, bucket_};
    for (int64_t begin = 0; begin < taken; begin += kTile) {
      const int64_t tile = std::min(kTile, taken - begin);
      char* const tile_out = codes_out + begin * s.bits / 8;
      int8_t unpacked[kTile];
      int8_t* const codes = s.bits == 8 ? reinterpret_cast<int8_t*>(tile_out) : unpacked;
      loops_.round_at_random(entries + begin, tile, inverse_, static_cast<int>(s.divisor), random,
                             bucket_done_ + begin, codes);
      if (s.bits < 8) loops_.pack(codes, tile, s.bits, tile_out);
      if (decoded == nullptr) continue;
      loops_.assign[static_cast<int>(s.form)](reinterpret_cast<const char*>(codes), tile, factor_,
                                              1, decoded + begin);
    }
  }
  bucket_done_ += taken;
  return {taken, head + bytes};
}

void Encoder::Advance(int64_t entries) {
  done_ += entries;
  if (bucket_size_ > 0 && bucket_done_ == bucket_size_) {
    ++bucket_;
    bucket_size_ = bucket_done_ = 0;
  }
  if (done_ < keys_.stretches()[stretch_].entries) return;
  done_ = 0;
  ++stretch_;
  if (stretch_ < keys_.stretches().size()) bucket_ = keys_.stretches()[stretch_].first_bucket;
}

}  // namespace tessera
