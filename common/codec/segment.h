// A run of entries of a payload that are written in one way: rows of buckets.
#ifndef TESSERA_COMMON_CODEC_SEGMENT_H_
#define TESSERA_COMMON_CODEC_SEGMENT_H_

#include <cstdint>

#include "common/codec/entry_form.h"

namespace tessera {

// A vector, and a matrix of one column, counts as rows of so many entries.
constexpr int64_t kVectorRow = 1024;
// A header is an f32.
constexpr int64_t kHeaderBytes = 4;

// The last bucket of a row and the last row of a segment may be shorter. Entries of b bits follow each other without
// gaps, the first in the lowest bits; a bucket fills up its last byte.
struct Segment {
  const EntryForm* form = nullptr;
  int bits = 32;  // of an entry; 2 to 8 where buckets have headers, else whole bytes
  int64_t entries = 0;
  int64_t row = 0;     // entries; at least 1
  int64_t bucket = 0;  // entries; at least 1, at most row
  // The payload's buckets before this segment.
  int64_t first_bucket = 0;
  // Where buckets have headers an entry is its code times header / divisor. `reach`: the largest magnitude that the
  // bits of a code can hold.
  float divisor = 1;
  float reach = 128;
  bool l2_norm = false;  // the header is the norm of all entries of the bucket, else of its largest

  bool has_headers() const { return form->has_headers(); }
  // The length of the bucket that begins at entry `at`.
  int64_t BucketAt(int64_t at) const;
  int64_t bytes() const;
  int64_t buckets() const;
};

// Entries that stand by themselves, in so many bytes each: one row, which is one bucket.
Segment PlainSegment(const EntryForm& form, int entry_bytes, int64_t entries);

// Bytes of `count` entries of `bits`.
inline int64_t BytesOfEntries(int64_t count, int bits) { return (count * bits + 7) / 8; }

}  // namespace tessera

#endif  // TESSERA_COMMON_CODEC_SEGMENT_H_
