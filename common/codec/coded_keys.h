// A key set as one codec writes it: which bytes hold which entries. Known to both ends, so that
// nothing of it is sent.
//
// A payload is a sequence of *stretches*, a stretch of rows, a row of buckets. The last bucket of a
// row and the last row of a stretch may be shorter.
//
//   f32, bf16, f16  one stretch, one row, one bucket: no header, entries of 4 or 2 bytes
//   int8            a stretch for each parameter; a bucket is a row: header, then 8 bits an entry
//   qsgd            the same with buckets of at most Codec::bucket entries of Codec::bits, but for
//                   parameters of fewer than kQsgdEntriesMin entries, which are stretches of f32
//
// The rows are those of the matrix. A vector, and a matrix of one column, counts as rows of
// kVectorRow entries. A header is an f32; entries of b bits follow each other without gaps, the
// first in the lowest bits; a bucket fills up its last byte. All numbers are little-endian.
#ifndef TESSERA_COMMON_CODEC_CODED_KEYS_H_
#define TESSERA_COMMON_CODEC_CODED_KEYS_H_

#include <cstdint>
#include <vector>

#include "common/codec/codec.h"
#include "common/layout/parameters.h"
#include "common/layout/shard_map.h"

namespace tessera {

constexpr int64_t kVectorRow = 1024;

enum class EntryForm { kF32, kBf16, kF16, kCode };

struct Stretch {
  EntryForm form = EntryForm::kF32;
  int bits = 32;  // of an entry; a kCode's 2 to 8
  int64_t entries = 0;
  int64_t row = 0;     // entries; at least 1
  int64_t bucket = 0;  // entries; at least 1, at most row
  // The payload's buckets before this stretch.
  int64_t first_bucket = 0;
  // kCode: an entry is its code times header / divisor. `reach`: the largest magnitude that its
  // bits can hold.
  float divisor = 1;
  float reach = 128;

  bool has_headers() const { return form == EntryForm::kCode; }
  // The length of the bucket that begins at entry `at`.
  int64_t BucketAt(int64_t at) const;
  int64_t bytes() const;
  int64_t buckets() const;
};

// Bytes of `count` entries of `bits`.
inline int64_t BytesOfEntries(int64_t count, int bits) { return (count * bits + 7) / 8; }

// Constant after construction; any thread.
class CodedKeys {
 public:
  // What `slices` say, which may be a subnet's; `full` tells the sizes of whole parameters. Not for
  // threshold, whose payloads have no fixed size (threshold.h).
  CodedKeys(const Codec& codec, const ShardSlices& slices, const ModelShape& full);
  // So many entries of f32, bf16 or f16, wherever they lie.
  static CodedKeys Plain(const Codec& codec, int64_t entries);
  // One stretch of a payload alone, whose buckets keep their numbers.
  static CodedKeys OfStretch(const Codec& codec, const Stretch& stretch);

  const Codec& codec() const { return codec_; }
  const std::vector<Stretch>& stretches() const { return stretches_; }
  int64_t entries() const { return entries_; }
  int64_t bytes() const { return bytes_; }
  // The longest bucket with a header: an encoder must be given so many entries at once.
  int64_t bucket_max() const { return bucket_max_; }

 private:
  explicit CodedKeys(const Codec& codec) : codec_(codec) {}
  void Add(Stretch stretch);

  const Codec codec_;
  std::vector<Stretch> stretches_;
  int64_t entries_ = 0;
  int64_t bytes_ = 0;
  int64_t bucket_max_ = 1;
};

// So many entries, wherever they lie, as the rows of one vector.
ShardSlices EntriesAsSlices(int64_t entries);
// The model that is this vector.
ModelShape VectorShape(int64_t entries);

// A key set in each of the forms in which a job exchanges it: f32, which is always understood, and
// those of its codecs. Constant after construction; any thread.
class CodedForms {
 public:
  CodedForms(const CodecChoice& codecs, const ShardSlices& slices, const ModelShape& full);

  // So many entries, wherever they lie: a vector of them. Whether they are few is asked of the `on_all`
  // that the exchange moves, however many servers have parts of them.
  static CodedForms OfEntries(const CodecChoice& codecs, int64_t entries, int64_t on_all);

  // nullptr for threshold. Another codec must be one of the job's.
  const CodedKeys* Find(const Codec& codec) const;

 private:
  std::vector<CodedKeys> forms_;
};

}  // namespace tessera

#endif  // TESSERA_COMMON_CODEC_CODED_KEYS_H_
