#include "common/codec/coded_keys.h"

#include <algorithm>

#include "common/base/check.h"

namespace tessera {
namespace {

constexpr int64_t kHeaderBytes = 4;

Stretch Plain(CodecKind kind, int64_t entries) {
  Stretch stretch;
  if (kind == CodecKind::kBf16 || kind == CodecKind::kF16) {
    stretch.form = kind == CodecKind::kBf16 ? EntryForm::kBf16 : EntryForm::kF16;
    stretch.bits = 16;
  }
  stretch.entries = entries;
  stretch.row = stretch.bucket = std::max<int64_t>(entries, 1);
  return stretch;
}

Stretch Coded(const Codec& codec, const Slice& slice) {
  Stretch stretch;
  stretch.form = EntryForm::kCode;
  stretch.entries = slice.size();
  stretch.row = slice.columns == 1 ? kVectorRow : slice.columns;
  if (codec.kind == CodecKind::kInt8) {
    stretch.bits = 8;
    stretch.bucket = stretch.row;
  } else {
    stretch.bits = codec.bits;
    stretch.bucket = std::min(stretch.row, codec.bucket);
    stretch.divisor = static_cast<float>(codec.levels());
    stretch.reach = static_cast<float>(codec.levels() + 1);
  }
  return stretch;
}

int64_t RowBytes(const Stretch& s, int64_t row) {
  const int64_t rest = row % s.bucket;
  const int64_t header = s.has_headers() ? kHeaderBytes : 0;
  return row / s.bucket * (header + BytesOfEntries(s.bucket, s.bits)) +
         (rest > 0 ? header + BytesOfEntries(rest, s.bits) : 0);
}

int64_t RowBuckets(const Stretch& s, int64_t row) { return (row + s.bucket - 1) / s.bucket; }

}  // namespace

int64_t Stretch::BucketAt(int64_t at) const {
  const int64_t row_left = std::min(entries - at, row - at % row);
  return std::min(row_left, bucket);
}

int64_t Stretch::bytes() const {
  return entries / row * RowBytes(*this, row) + RowBytes(*this, entries % row);
}

int64_t Stretch::buckets() const {
  return entries / row * RowBuckets(*this, row) + RowBuckets(*this, entries % row);
}

CodedKeys::CodedKeys(const Codec& codec, const ShardSlices& slices, const ModelShape& full)
    : codec_(codec) {
  TESSERA_CHECK(codec.kind != CodecKind::kThreshold);
  if (IsPlain(codec)) {
    Add(tessera::Plain(codec.kind, slices.size));
    return;
  }
  for (const Slice& slice : slices.slices) {
    const bool is_small =
        codec.kind == CodecKind::kQsgd && full.parameters[slice.parameter].size() < kQsgdEntriesMin;
    Add(is_small ? tessera::Plain(CodecKind::kF32, slice.size()) : Coded(codec, slice));
  }
  TESSERA_CHECK(entries_ == slices.size);
}

CodedKeys CodedKeys::Plain(const Codec& codec, int64_t entries) {
  TESSERA_CHECK(IsPlain(codec));
  CodedKeys keys(codec);
  keys.Add(tessera::Plain(codec.kind, entries));
  return keys;
}

CodedKeys CodedKeys::OfStretch(const Codec& codec, const Stretch& stretch) {
  CodedKeys keys(codec);
  keys.Add(stretch);
  return keys;
}

void CodedKeys::Add(Stretch stretch) {
  if (stretch.entries == 0) return;
  if (!stretches_.empty()) {
    const Stretch& last = stretches_.back();
    stretch.first_bucket = last.first_bucket + last.buckets();
  }
  if (stretch.has_headers()) {
    bucket_max_ = std::max(bucket_max_, std::min(stretch.bucket, stretch.entries));
  }
  entries_ += stretch.entries;
  bytes_ += stretch.bytes();
  stretches_.push_back(stretch);
}

CodedForms::CodedForms(const CodecChoice& codecs, const ShardSlices& slices,
                       const ModelShape& full) {
  forms_.reserve(3);
  for (const Codec& codec : {Codec(), codecs.push, codecs.pull}) {
    if (Find(codec) == nullptr && codec.kind != CodecKind::kThreshold) {
      forms_.emplace_back(codec, slices, full);
    }
  }
}

ShardSlices EntriesAsSlices(int64_t entries) {
  Slice vector;
  vector.row_end = entries;
  ShardSlices slices;
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
