// A key set as one codec writes it: which bytes hold which entries. Known to both ends, so that
// nothing of it is sent.
//
// A payload is a sequence of *segments*, a segment of rows, a row of buckets. The last bucket of a
// row and the last row of a segment may be shorter.
//
//   f32, bf16, f16  one segment, one row, one bucket: no header, entries of 4 or 2 bytes
//   int8            a segment for each parameter; a bucket is a row: header, then 8 bits an entry
//   qsgd            a segment for each parameter, too, with buckets of as many entries, at most, and bits as the codec
//                   says; those of parameters of fewer than kQsgdEntriesMin entries are f32's
//
// The rows are those of the matrix (segment.h). All numbers are little-endian.
#ifndef TESSERA_COMMON_CODEC_CODED_KEYS_H_
#define TESSERA_COMMON_CODEC_CODED_KEYS_H_

#include <cstdint>
#include <vector>

#include "common/codec/codec.h"
#include "common/codec/segment.h"
#include "common/layout/parameters.h"
#include "common/layout/shard_map.h"

namespace tessera {

// Constant after construction; any thread.
class CodedKeys {
 public:
  // What `slices` say, which may be a subnet's; `full` tells the sizes of whole parameters. Not for a selective codec,
  // whose payloads have no fixed size (selective_codec.h).
  CodedKeys(const Codec& codec, const ShardSlices& slices, const ModelShape& full);
  // The form of `entries` entries of a codec that IsPlain, wherever they lie.
  static CodedKeys Plain(const Codec& codec, int64_t entries);
  // One segment of a payload alone, whose buckets keep their numbers. Of what codec it is nobody says: codec() is f32.
  static CodedKeys OfSegment(const Segment& segment);

  const Codec& codec() const { return codec_; }
  const std::vector<Segment>& segments() const { return segments_; }
  int64_t entries() const { return entries_; }
  int64_t bytes() const { return bytes_; }
  // The longest bucket with a header: an encoder must be given so many entries at once.
  int64_t bucket_max() const { return bucket_max_; }

 private:
  explicit CodedKeys(const Codec& codec) : codec_(codec) {}
  void Add(Segment segment);

  const Codec codec_;
  std::vector<Segment> segments_;
  int64_t entries_ = 0;
  int64_t bytes_ = 0;
  int64_t bucket_max_ = 1;
};

// `entries` entries, wherever they lie, as the rows of one vector.
ShardSlices EntriesAsSlices(int64_t entries);
// The model that is this vector.
ModelShape VectorShape(int64_t entries);

// A key set in each of the forms in which a job exchanges it: f32, which is always understood, and
// those of its codecs. Constant after construction; any thread.
class CodedForms {
 public:
  CodedForms(const CodecChoice& codecs, const ShardSlices& slices, const ModelShape& full);

  // The forms of `entries` entries, wherever they lie, as a vector of them. Codecs that leave few entries as f32 go by
  // `on_all`, which the exchange moves on all servers together.
  static CodedForms OfEntries(const CodecChoice& codecs, int64_t entries, int64_t on_all);

  // nullptr for a selective codec. Another one must be one of the job's.
  const CodedKeys* Find(const Codec& codec) const;

 private:
  std::vector<CodedKeys> forms_;
};

}  // namespace tessera

#endif  // TESSERA_COMMON_CODEC_CODED_KEYS_H_
