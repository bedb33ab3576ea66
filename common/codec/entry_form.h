// How entries are written: the arithmetic of a codec over runs of entries that lie behind each other in memory.
//
// Every loop exists for each CodecPath, and all give the same bits. Bytes may be misaligned. A codec's own files define
// its form (f32.cc, int8.cc, ...); encoder, decoder and arrival check call it once a run, never once an entry.
#ifndef TESSERA_COMMON_CODEC_ENTRY_FORM_H_
#define TESSERA_COMMON_CODEC_ENTRY_FORM_H_

#include <cstdint>

#include "common/codec/bucket_scale.h"
#include "common/codec/path.h"
#include "common/codec/stochastic.h"

namespace tessera {

struct Segment;

// The loops of one path.
struct EntryLoops {
  // sum[i] = weight * x[i], or sum[i] += weight * x[i]; where a bucket has a header, x is a code * factor, and codes
  // are bytes.
  using Decode = void (*)(const char* in, int64_t count, float factor, float weight, float* sum);
  Decode assign;
  Decode accumulate;
  // nullptr where buckets have headers, which are made and checked instead.
  void (*encode)(const float* in, int64_t count, char* out);
  bool (*any_not_finite)(const char* in, int64_t count);
};

// Entries of a bucket that are coded next. `first`, the place of the first one in the bucket, is a multiple of
// kRandomGroup.
struct CodeRun {
  const Segment& segment;
  CodecPath path;
  BucketScale scale;
  BucketRandom random;
  int64_t first;
  const float* entries;
  int64_t count;
};

struct EntryForm {
  const EntryLoops* loops;  // by CodecPath
  // What the header of a bucket says and its codes stand for. nullptr: there are no headers, and each entry stands by
  // itself.
  BucketScale (*scale)(const Segment& segment, const float* bucket, int64_t size, CodecPath path);
  // Writes BytesOfEntries(run.count, run.segment.bits) bytes. `decoded`, unless nullptr, receives what a reader will
  // see. run.scale.inverse is not 0.
  void (*encode_codes)(const CodeRun& run, char* out, float* decoded);

  const EntryLoops& at(CodecPath path) const { return loops[static_cast<int>(path)]; }
  bool has_headers() const { return scale != nullptr; }
};

}  // namespace tessera

#endif  // TESSERA_COMMON_CODEC_ENTRY_FORM_H_
