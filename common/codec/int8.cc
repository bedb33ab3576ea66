#include "common/codec/int8.h"

#include "common/codec/bucket_loops.h"

namespace tessera {
namespace {

BucketScale Int8Scale(const Segment& s, const float* bucket, int64_t size, CodecPath path) {
  // The scale is the largest magnitude, as a finer one would cut that off; only QSGD may scale by the norm.
  return BucketScaleOf(/*nearest=*/true, s.divisor, BucketLoopsOf(path).largest(bucket, size),
                       /*square_sum=*/-1.0);
}

void EncodeInt8(const CodeRun& run, char* out, float* decoded) {
  BucketLoopsOf(run.path).round_to_nearest(run.entries, run.count, run.scale.inverse, out);
  // What a reader will see is read back from the codes, so that both have the same bits.
  if (decoded == nullptr) return;
  kInt8Form.at(run.path).assign(out, run.count, run.scale.factor, 1, decoded);
}

class Int8 final : public CodecDefinition {
 public:
  Int8() : CodecDefinition("int8", "", Traits()) {}

  Segment Write(const ParameterRows& rows) const override {
    Segment segment;
    segment.form = &kInt8Form;
    segment.bits = 8;
    segment.entries = rows.entries;
    // A bucket is a row of the parameter, whose entries are of similar size; a vector is cut every kVectorRow entries.
    segment.row = segment.bucket = rows.columns == 1 ? kVectorRow : rows.columns;
    return segment;
  }

 private:
  static CodecTraits Traits() {
    CodecTraits traits;
    traits.loss = CodecLoss::kBiased;
    traits.on_devices = true;
    return traits;
  }
};

}  // namespace

const EntryForm kInt8Form = {kCodeLoops, Int8Scale, EncodeInt8};

Codec Int8Codec() { return Codec(std::make_shared<const Int8>()); }

}  // namespace tessera
