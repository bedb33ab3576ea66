#include "common/codec/coded_keys.h"

#include <algorithm>

#include "common/base/check.h"

namespace tessera {
CodedKeys::CodedKeys(const Codec& codec, const ShardSlices& slices, const ModelShape& full)
    : codec_(codec) {
  // A plain codec treats each entry by itself, so that all slices are one segment.
  if (IsPlain(codec)) {
    Add(codec->Write({slices.size, 1, slices.size}));
    return;
  }
  for (const Slice& slice : slices.slices) {
    // Buckets end with a parameter's rows, so each slice is a segment of its own.
    Add(codec->Write({slice.size(), slice.columns, full.parameters[slice.parameter].size()}));
  }
  TESSERA_CHECK(entries_ == slices.size);
}

CodedKeys CodedKeys::Plain(const Codec& codec, int64_t entries) {
  TESSERA_CHECK(IsPlain(codec));
  CodedKeys keys(codec);
  keys.Add(codec->Write({entries, 1, entries}));
  return keys;
}

CodedKeys CodedKeys::OfSegment(const Segment& segment) {
  CodedKeys keys{Codec()};
  keys.Add(segment);
  return keys;
}

void CodedKeys::Add(Segment segment) {
  if (segment.entries == 0) return;
  // The first segment begins with bucket 0, unless it was cut out of a larger payload and says otherwise.
  if (!segments_.empty()) {
    // Buckets are numbered through the whole payload: the random numbers of each follow from its number.
    const Segment& last = segments_.back();
    segment.first_bucket = last.first_bucket + last.buckets();
  }
  if (segment.has_headers()) {
    // Only buckets with a header must be whole in memory when they are coded.
    bucket_max_ = std::max(bucket_max_, std::min(segment.bucket, segment.entries));
  }
  entries_ += segment.entries;
  bytes_ += segment.bytes();
  segments_.push_back(segment);
}

CodedForms::CodedForms(const CodecChoice& codecs, const ShardSlices& slices,
                       const ModelShape& full) {
  forms_.reserve(3);
  // The three may be the same codec; each form is kept once. A selective codec has no form by keys.
  for (const Codec& codec : {Codec(), codecs.push, codecs.pull}) {
    if (Find(codec) == nullptr && codec->selective() == nullptr) {
      forms_.emplace_back(codec, slices, full);
    }
  }
}

ShardSlices EntriesAsSlices(int64_t entries) {
  Slice vector;
  vector.row_end = entries;
  ShardSlices slices;
  // Without entries there is no slice, rather than an empty one.
  if (entries > 0) slices.slices.push_back(vector);
  slices.size = entries;
  return slices;
}

ModelShape VectorShape(int64_t entries) {
  ParameterSpec vector;
  vector.rows = entries;
  vector.is_vector = true;
  ModelShape shape;
  shape.parameters.push_back(vector);
  shape.size = entries;
  return shape;
}

CodedForms CodedForms::OfEntries(const CodecChoice& codecs, int64_t entries, int64_t on_all) {
  return CodedForms(codecs, EntriesAsSlices(entries), VectorShape(on_all));
}

const CodedKeys* CodedForms::Find(const Codec& codec) const {
  for (const CodedKeys& form : forms_) {
    if (form.codec() == codec) return &form;
  }
  return nullptr;
}

}  // namespace tessera
