#include "common/codec/f32.h"

#include "common/codec/plain_entry.h"
#include "common/codec/plain_loops.h"

namespace tessera {

const EntryForm kF32Form = {kPlainLoops<AsF32>, nullptr, nullptr};

namespace {

class F32 final : public CodecDefinition {
 public:
  F32() : CodecDefinition("f32", "", Traits()) {}

  Segment Write(const ParameterRows& rows) const override {
    return PlainSegment(kF32Form, AsF32::kBytes, rows.entries);
  }

 private:
  static CodecTraits Traits() {
    CodecTraits traits;
    traits.entry_bytes = AsF32::kBytes;
    traits.keeps_small = true;
    traits.on_devices = true;
    return traits;
  }
};

}  // namespace

// There is one, as it is what a Codec is where nothing else is said.
Codec F32Codec() {
  static const auto* const definition =
      new std::shared_ptr<const CodecDefinition>(std::make_shared<const F32>());
  return Codec(*definition);
}

}  // namespace tessera
