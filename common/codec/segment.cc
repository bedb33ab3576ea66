#include "common/codec/segment.h"

#include <algorithm>

namespace tessera {
namespace {

// The bytes of a row of `row` entries: full buckets, and a shorter one for the rest.
int64_t RowBytes(const Segment& s, int64_t row) {
  const int64_t rest = row % s.bucket;
  const int64_t header = s.has_headers() ? kHeaderBytes : 0;
  return row / s.bucket * (header + BytesOfEntries(s.bucket, s.bits)) +
         (rest > 0 ? header + BytesOfEntries(rest, s.bits) : 0);
}

int64_t RowBuckets(const Segment& s, int64_t row) { return (row + s.bucket - 1) / s.bucket; }

}  // namespace

int64_t Segment::BucketAt(int64_t at) const {
  // A bucket ends with its row, and with the segment.
  const int64_t row_left = std::min(entries - at, row - at % row);
  return std::min(row_left, bucket);
}

int64_t Segment::bytes() const {
  return entries / row * RowBytes(*this, row) + RowBytes(*this, entries % row);
}

int64_t Segment::buckets() const {
  return entries / row * RowBuckets(*this, row) + RowBuckets(*this, entries % row);
}

Segment PlainSegment(const EntryForm& form, int entry_bytes, int64_t entries) {
  Segment segment;
  segment.form = &form;
  segment.bits = 8 * entry_bytes;
  segment.entries = entries;
  // A plain form has neither rows nor headers: one bucket as long as the segment, and never of length 0.
  segment.row = segment.bucket = std::max<int64_t>(entries, 1);
  return segment;
}

}  // namespace tessera
