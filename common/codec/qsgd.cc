#include "common/codec/qsgd.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/codec/bucket_loops.h"
#include "common/codec/f32.h"

namespace tessera {
namespace {

// Codes that are packed at a time: whole groups, small enough for the stack.
constexpr int64_t kRandomTile = 8 * kRandomGroup;

BucketScale QsgdScale(const Segment& s, const float* bucket, int64_t size, CodecPath path) {
  const BucketLoops& loops = BucketLoopsOf(path);
  return BucketScaleOf(/*nearest=*/false, s.divisor, loops.largest(bucket, size),
                       s.l2_norm ? loops.square_sum(bucket, size) : -1.0);
}

void EncodeQsgd(const CodeRun& run, char* out, float* decoded) {
  const BucketLoops& loops = BucketLoopsOf(run.path);
  const int bits = run.segment.bits;
  for (int64_t begin = 0; begin < run.count; begin += kRandomTile) {
    const int64_t tile = std::min(kRandomTile, run.count - begin);
    // Tiles are whole groups, so each begins with a byte of its own.
    char* const tile_out = out + begin * bits / 8;
    int8_t unpacked[kRandomTile];
    // Codes of whole bytes are written where they belong; smaller ones take a detour through the stack to be packed.
    int8_t* const codes = bits == 8 ? reinterpret_cast<int8_t*>(tile_out) : unpacked;
    loops.round_at_random(run.entries + begin, tile, run.scale.inverse,
                          static_cast<int>(run.segment.divisor), run.random, run.first + begin,
                          codes);
    if (bits < 8) loops.pack(codes, tile, bits, tile_out);
    // Only error feedback asks for what the codes decode to.
    if (decoded == nullptr) continue;
    kQsgdForm.at(run.path).assign(reinterpret_cast<const char*>(codes), tile, run.scale.factor, 1,
                                  decoded + begin);
  }
}

class Qsgd final : public CodecDefinition {
 public:
  Qsgd(int bits, int64_t bucket, bool l2_norm)
      : CodecDefinition(
            "qsgd",
            absl::StrCat(bits, " bits, buckets of ", bucket, ", ", l2_norm ? "l2" : "max", " norm"),
            Traits()),
        bits_(bits),
        bucket_(bucket),
        l2_norm_(l2_norm) {}

  Segment Write(const ParameterRows& rows) const override {
    // Small parameters, such as biases, save little and lose much; they are sent as f32.
    if (rows.parameter_entries < kQsgdEntriesMin) {
      return PlainSegment(kF32Form, sizeof(float), rows.entries);
    }
    // Codes are signed: with b bits there are 2^(b-1) - 1 levels besides 0 on each side.
    const int levels = (1 << (bits_ - 1)) - 1;
    Segment segment;
    segment.form = &kQsgdForm;
    segment.bits = bits_;
    segment.entries = rows.entries;
    segment.row = rows.columns == 1 ? kVectorRow : rows.columns;
    segment.bucket = std::min(segment.row, bucket_);
    segment.divisor = static_cast<float>(levels);
    // The lowest code of two's complement reaches one level further than any that is written, and a payload may have
    // it.
    segment.reach = static_cast<float>(levels + 1);
    segment.l2_norm = l2_norm_;
    return segment;
  }

 private:
  static CodecTraits Traits() {
    CodecTraits traits;
    traits.loss = CodecLoss::kUnbiased;
    traits.parameter_entries_min = kQsgdEntriesMin;
    traits.on_devices = true;
    return traits;
  }

  const int bits_;
  const int64_t bucket_;
  const bool l2_norm_;
};

}  // namespace

const EntryForm kQsgdForm = {kCodeLoops, QsgdScale, EncodeQsgd};

Codec QsgdCodec(int bits, int64_t bucket, bool l2_norm) {
  return Codec(std::make_shared<const Qsgd>(bits, bucket, l2_norm));
}

}  // namespace tessera
