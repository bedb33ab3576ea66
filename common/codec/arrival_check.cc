#include "common/codec/arrival_check.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace tessera {
ArrivalCheck::ArrivalCheck(const CodedKeys& keys, CodecPath path) : keys_(keys), path_(path) {}

bool ArrivalCheck::Feed(const char* data, int64_t size) {
  while (bad_entry_ < 0 && size > 0 && segment_ < keys_.segments().size()) {
    const Segment& s = keys_.segments()[segment_];
    if (s.has_headers()) {
      FeedBuckets(&data, &size);
    } else {
      FeedPlain(&data, &size);
    }
    // Codes that are still to come belong to this segment, though its last bucket was counted with its header.
    if (done_ == s.entries && code_bytes_ == 0) {
      before_ += done_;
      done_ = 0;
      ++segment_;
    }
  }
  return bad_entry_ < 0;
}

// Collects bytes of an entry or header that a piece of the payload cut in two. True: all `wanted` are in carry_.
bool ArrivalCheck::Carry(const char** data, int64_t* size, int64_t wanted) {
  const int64_t taken = std::min(*size, wanted - carry_size_);
  std::memcpy(carry_ + carry_size_, *data, taken);
  carry_size_ += taken;
  *data += taken;
  *size -= taken;
  if (carry_size_ < wanted) return false;
  carry_size_ = 0;
  return true;
}

void ArrivalCheck::FeedPlain(const char** data, int64_t* size) {
  const Segment& s = keys_.segments()[segment_];
  const int64_t entry_bytes = s.bits / 8;
  const auto any = s.form->at(path_).any_not_finite;
  // Whole entries are looked at where they lie; one that two pieces share is put together first.
  const int64_t whole = std::min(s.entries - done_, *size / entry_bytes);
  if (carry_size_ > 0 || whole == 0) {
    if (!Carry(data, size, entry_bytes)) return;
    if (any(carry_, 1)) bad_entry_ = before_ + done_;
    ++done_;
    return;
  }
  // The quick loop says only whether any entry is bad; the slow one finds it, once per bad payload.
  if (any(*data, whole)) {
    int64_t i = 0;
    while (!any(*data + entry_bytes * i, 1)) ++i;
    bad_entry_ = before_ + done_ + i;
  }
  *data += whole * entry_bytes;
  *size -= whole * entry_bytes;
  done_ += whole;
}

// Takes in part of a bucket: its header, whose scale must decode to finite values, or its codes, which may be anything.
void ArrivalCheck::FeedBuckets(const char** data, int64_t* size) {
  const Segment& s = keys_.segments()[segment_];
  if (code_bytes_ == 0) {
    if (!Carry(data, size, kHeaderBytes)) return;
    float header;
    std::memcpy(&header, carry_, sizeof(header));
    // A scale below zero or a NaN fails the first comparison; one that only the largest code makes infinite, the
    // second.
    if (!(header >= 0) || !std::isfinite(header / s.divisor * s.reach)) {
      bad_entry_ = before_ + done_;
      return;
    }
    const int64_t bucket = s.BucketAt(done_);
    code_bytes_ = BytesOfEntries(bucket, s.bits);
    // A bucket's entries count when its header is there: its codes cannot be wrong any more.
    done_ += bucket;
  }
  const int64_t skipped = std::min(*size, code_bytes_);
  *data += skipped;
  *size -= skipped;
  code_bytes_ -= skipped;
}

int64_t FirstBadEntry(const CodedKeys& keys, const Payload& payload) {
  // A payload stays in the pieces that the transport delivered, and is checked piece by piece.
  ArrivalCheck check(keys);
  for (const Payload::Piece& piece : payload.pieces()) {
    if (!check.Feed(piece.data, piece.size)) break;
  }
  return check.bad_entry();
}

}  // namespace tessera
