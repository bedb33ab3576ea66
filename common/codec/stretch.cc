#include "common/codec/stretch.h"

#include <algorithm>

namespace tessera {
namespace {

// The bytes of a row of `row` entries: full buckets, and a shorter one for the rest.
int64_t RowBytes(const Stretch& s, int64_t row) {
  const int64_t rest = row % s.bucket;
  const int64_t header = s.has_headers() ? kHeaderBytes : 0;
  return row / s.bucket * (header + BytesOfEntries(s.bucket, s.bits)) +
         (rest > 0 ? header + BytesOfEntries(rest, s.bits) : 0);
}

int64_t RowBuckets(const Stretch& s, int64_t row) { return (row + s.bucket - 1) / s.bucket; }

}  // namespace

int64_t Stretch::BucketAt(int64_t at) const {
  // A bucket ends with its row, and with the stretch.
  const int64_t row_left = std::min(entries - at, row - at % row);
  return std::min(row_left, bucket);
}

int64_t Stretch::bytes() const {
  return entries / row * RowBytes(*this, row) + RowBytes(*this, entries % row);
}

int64_t Stretch::buckets() const {
  return entries / row * RowBuckets(*this, row) + RowBuckets(*this, entries % row);
}

Stretch PlainStretch(const EntryForm& form, int entry_bytes, int64_t entries) {
  Stretch stretch;
  stretch.form = &form;
  stretch.bits = 8 * entry_bytes;
  stretch.entries = entries;
  // A plain form has neither rows nor headers: one bucket as long as the stretch, and never of length 0.
  stretch.row = stretch.bucket = std::max<int64_t>(entries, 1);
  return stretch;
}

}  // namespace tessera
