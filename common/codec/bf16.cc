#include "common/codec/bf16.h"

#include "common/codec/plain_entry.h"
#include "common/codec/plain_loops.h"

namespace tessera {

const EntryForm kBf16Form = {kPlainLoops<AsBf16>, nullptr, nullptr};

namespace {

class Bf16Definition final : public CodecDefinition {
 public:
  Bf16Definition() : CodecDefinition("bf16", "", Traits()) {}

  Segment Write(const ParameterRows& rows) const override {
    return PlainSegment(kBf16Form, AsBf16::kBytes, rows.entries);
  }

 private:
  // bf16 keeps f32's exponent: no value overflows, and rounding to nearest loses small changes (biased without
  // feedback).
  static CodecTraits Traits() {
    CodecTraits traits;
    traits.loss = CodecLoss::kBiased;
    traits.entry_bytes = AsBf16::kBytes;
    traits.keeps_small = true;
    traits.on_devices = true;
    return traits;
  }
};

}  // namespace

Codec Bf16Codec() { return Codec(std::make_shared<const Bf16Definition>()); }

}  // namespace tessera
