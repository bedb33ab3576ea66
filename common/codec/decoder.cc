#include "common/codec/decoder.h"

#include <algorithm>
#include <cstring>

#include "common/base/check.h"
#include "common/codec/bucket_loops.h"

namespace tessera {
namespace {

// Packed codes that are unpacked at a time: few enough for the stack and the first-level cache.
constexpr int64_t kTile = 1024;

}  // namespace

Decoder::Decoder(const CodedKeys& keys, CodecPath path)
    : keys_(keys), path_(path), left_(keys.entries()) {}

Decoder::Step Decoder::Assign(const char* data, int64_t size, float weight, float* sum,
                              int64_t count) {
  return Read(&EntryLoops::assign, data, size, weight, sum, count);
}

Decoder::Step Decoder::Accumulate(const char* data, int64_t size, float weight, float* sum,
                                  int64_t count) {
  return Read(&EntryLoops::accumulate, data, size, weight, sum, count);
}

Decoder::Step Decoder::Read(EntryLoops::Decode EntryLoops::*which, const char* data, int64_t size,
                            float weight, float* sum, int64_t count) {
  // Asking for more entries than the payload has is a fault of the caller: sizes were checked on arrival.
  TESSERA_CHECK(count <= left_);
  const int64_t size_before = size;
  int64_t entries = 0;
  // Stops where data end in the middle of something: the rest is kept in carry_, and the next call goes on.
  while (entries < count) {
    if (bucket_left_ == 0 && !BeginBucket(&data, &size)) break;
    const Segment& s = keys_.segments()[segment_];
    const EntryLoops::Decode loop = s.form->at(path_).*which;
    const int64_t wanted = std::min(count - entries, bucket_left_);
    const int64_t read = s.bits < 8 ? ReadPacked(loop, &data, &size, weight, sum + entries, wanted)
                                    : ReadWhole(loop, &data, &size, weight, sum + entries, wanted);
    if (read == 0) break;
    entries += read;
    Advance(read);
  }
  return {size_before - size, entries};
}

// Collects bytes of an entry, a header or a group that a piece of data cut in two. True: all `wanted` are in carry_.
bool Decoder::Carry(const char** data, int64_t* size, int64_t wanted) {
  const int64_t taken = std::min(*size, wanted - carry_size_);
  std::memcpy(carry_ + carry_size_, *data, taken);
  carry_size_ += taken;
  *data += taken;
  *size -= taken;
  return carry_size_ == wanted;
}

bool Decoder::BeginBucket(const char** data, int64_t* size) {
  const Segment& s = keys_.segments()[segment_];
  if (s.has_headers()) {
    if (*size == 0 || !Carry(data, size, kHeaderBytes)) return false;
    float header;
    std::memcpy(&header, carry_, sizeof(header));
    carry_size_ = 0;
    factor_ = header / s.divisor;
  }
  bucket_left_ = s.BucketAt(done_);
  return true;
}

// Entries of one, two or four bytes.
int64_t Decoder::ReadWhole(EntryLoops::Decode decode, const char** data, int64_t* size,
                           float weight, float* sum, int64_t count) {
  const int64_t entry_bytes = keys_.segments()[segment_].bits / 8;
  if (carry_size_ == 0) {
    const int64_t taken = std::min(count, *size / entry_bytes);
    // With less than one entry left of this piece, its bytes go to carry_ below.
    if (taken > 0) {
      decode(*data, taken, factor_, weight, sum);
      *data += taken * entry_bytes;
      *size -= taken * entry_bytes;
      return taken;
    }
  }
  if (*size == 0 || !Carry(data, size, entry_bytes)) return 0;
  carry_size_ = 0;
  decode(carry_, 1, factor_, weight, sum);
  return 1;
}

// Groups of 8 entries of `bits`, which are `bits` bytes; the last of a bucket may be shorter.
int64_t Decoder::ReadPacked(EntryLoops::Decode decode, const char** data, int64_t* size,
                            float weight, float* sum, int64_t count) {
  const int bits = keys_.segments()[segment_].bits;
  const auto decode_codes = [&](const int8_t* codes, int64_t n) {
    decode(reinterpret_cast<const char*>(codes), n, factor_, weight, sum);
    return n;
  };
  // Whole groups are unpacked where they lie; a group that was cut in two, or a bucket's short last one, goes through
  // carry_, and may be consumed in parts.
  if (group_begin_ == group_end_ && carry_size_ == 0) {
    // No more groups than fit a tile, so that codes stay in the cache between unpacking and decoding.
    const int64_t groups = std::min({count / kGroup, *size / bits, kTile / kGroup});
    if (groups > 0) {
      int8_t codes[kTile];
      BucketLoopsOf(path_).unpack(*data, groups * kGroup, bits, codes);
      *data += groups * bits;
      *size -= groups * bits;
      return decode_codes(codes, groups * kGroup);
    }
  }
  if (group_begin_ == group_end_) {
    const int64_t group = std::min(kGroup, bucket_left_);
    if (*size == 0 || !Carry(data, size, BytesOfEntries(group, bits))) return 0;
    carry_size_ = 0;
    BucketLoopsOf(path_).unpack(carry_, group, bits, group_);
    group_begin_ = 0;
    group_end_ = group;
  }
  // A caller may want fewer entries than the group has; the others wait in group_.
  const int64_t taken = std::min(count, group_end_ - group_begin_);
  group_begin_ += taken;
  return decode_codes(group_ + group_begin_ - taken, taken);
}

void Decoder::Advance(int64_t entries) {
  left_ -= entries;
  done_ += entries;
  bucket_left_ -= entries;
  if (done_ < keys_.segments()[segment_].entries) return;
  done_ = 0;
  // Empty segments are not kept, so the next one has entries.
  ++segment_;
}

PayloadReader::PayloadReader(const CodedKeys& keys, const Payload& payload, CodecPath path)
    : payload_(payload), decoder_(keys, path) {
  // Whoever received the payload checked its size; another one here means that keys were mixed up.
  TESSERA_CHECK(payload.size() == keys.bytes());
}

template <typename Take>
void PayloadReader::Walk(int64_t count, float* sum, Take take) {
  const char* data = nullptr;
  int64_t size = 0;
  // A codec may still hold entries of its last group when data have ended, so the last call is made without any.
  while (true) {
    if (piece_ < payload_.pieces().size()) {
      data = payload_.pieces()[piece_].data + offset_;
      size = payload_.pieces()[piece_].size - offset_;
    } else {
      size = 0;
    }
    // The decoder says how far it came in bytes and entries, as one piece seldom ends with an entry.
    const Decoder::Step step = take(data, size, sum, count);
    offset_ += step.bytes;
    sum += step.entries;
    count -= step.entries;
    if (count == 0) return;
    // More pieces must follow, as the size of the payload was checked.
    TESSERA_CHECK(step.bytes == size && piece_ < payload_.pieces().size());
    ++piece_;
    offset_ = 0;
  }
}

void PayloadReader::Assign(int64_t count, float weight, float* sum) {
  Walk(count, sum, [this, weight](const char* data, int64_t size, float* out, int64_t n) {
    return decoder_.Assign(data, size, weight, out, n);
  });
}

void PayloadReader::Accumulate(int64_t count, float weight, float* sum) {
  Walk(count, sum, [this, weight](const char* data, int64_t size, float* out, int64_t n) {
    return decoder_.Accumulate(data, size, weight, out, n);
  });
}

}  // namespace tessera
