#include "common/codec/encoder.h"

#include <algorithm>
#include <cstring>

#include "common/base/check.h"
#include "common/codec/stochastic.h"

namespace tessera {
namespace {

static_assert(Encoder::kRoomMin >= kHeaderBytes + kRandomGroup);

}  // namespace

Encoder::Encoder(const CodedKeys& keys, const PayloadRandom& random, CodecPath path)
    : keys_(keys), random_(random), path_(path), left_(keys.bytes()) {
  if (!keys.segments().empty()) bucket_ = keys.segments().front().first_bucket;
}

Encoder::Ahead Encoder::ahead() const {
  if (segment_ == keys_.segments().size()) return {};
  const Segment& s = keys_.segments()[segment_];
  // A bucket that was begun needs only its rest.
  return {s.BucketAt(done_ - bucket_done_) - (s.has_headers() ? bucket_done_ : 0), s.has_headers()};
}

Encoder::Step Encoder::Encode(const float* entries, int64_t count, char* out, int64_t room,
                              float* decoded) {
  Step all;
  while (all.entries < count) {
    TESSERA_CHECK(segment_ < keys_.segments().size());
    const bool has_headers = keys_.segments()[segment_].has_headers();
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
  const Segment& s = keys_.segments()[segment_];
  const int64_t entry_bytes = s.bits / 8;
  const int64_t taken = std::min({count, s.entries - done_, room / entry_bytes});
  if (taken == 0) return {};
  const EntryLoops& loops = s.form->at(path_);
  loops.encode(entries, taken, out);
  // What a reader will see is read back from the bytes, so that error feedback knows the rounding.
  if (decoded != nullptr) loops.assign(out, taken, 1, 1, decoded);
  return {taken, taken * entry_bytes};
}

Encoder::Step Encoder::EncodeBucket(const float* entries, int64_t count, char* out, int64_t room,
                                    float* decoded) {
  const Segment& s = keys_.segments()[segment_];
  const int64_t size = s.BucketAt(done_ - bucket_done_);
  const bool begins = bucket_size_ == 0;
  const int64_t head = begins ? kHeaderBytes : 0;
  int64_t taken = size - bucket_done_;
  // A caller gives all that is left of the bucket, as the scale at its beginning needs every entry.
  TESSERA_CHECK(count >= taken);
  if (head + BytesOfEntries(taken, s.bits) > room) {
    // A bucket may be cut only between groups of kRandomGroup entries, which share their random numbers and whole
    // bytes.
    taken = std::max<int64_t>(0, (room - head) * 8 / s.bits) / kRandomGroup * kRandomGroup;
    taken = std::min(taken, (size - bucket_done_) / kRandomGroup * kRandomGroup);
  }
  if (taken == 0) return {};
  if (begins) {
    bucket_size_ = size;
    // The scale is that of the bucket's first call, whose entries are all of it; later parts must not change it.
    scale_ = s.form->scale(s, entries, size, path_);
    std::memcpy(out, &scale_.header, kHeaderBytes);
  }
  char* const codes_out = out + head;
  const int64_t bytes = BytesOfEntries(taken, s.bits);
  // A bucket of zeros, or of values too small to code, is written as zeros without random numbers.
  if (scale_.inverse == 0) {
    std::memset(codes_out, 0, bytes);
    if (decoded != nullptr) std::fill_n(decoded, taken, UncodedEntry(scale_));
  } else {
    const BucketRandom random{random_, bucket_};
    s.form->encode_codes({s, path_, scale_, random, bucket_done_, entries, taken}, codes_out,
                         decoded);
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
  if (done_ < keys_.segments()[segment_].entries) return;
  done_ = 0;
  ++segment_;
  // Each segment says which bucket it begins with, which a part of a payload takes from the whole.
  if (segment_ < keys_.segments().size()) bucket_ = keys_.segments()[segment_].first_bucket;
}

}  // namespace tessera
