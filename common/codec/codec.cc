#include "common/codec/codec.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/codec/f32.h"

namespace tessera {

CodecDefinition::CodecDefinition(absl::string_view kind, absl::string_view numbers,
                                 const CodecTraits& traits)
    : kind_(kind),
      name_(numbers.empty() ? std::string(kind) : absl::StrCat(kind, " (", numbers, ")")),
      traits_(traits) {}

Segment CodecDefinition::Write(const ParameterRows&) const {
  // A selective codec does not write slices; its caller asks selective() first.
  TESSERA_CHECK(false);
  return {};
}

Codec::Codec() : Codec(F32Codec()) {}

absl::StatusOr<Codec> NamedCodec(absl::string_view name, const Codec& own) {
  // The name comes from a peer; what of it goes into the message is bounded.
  constexpr size_t kQuotedMax = 64;
  const Codec f32;
  if (name.empty() || name == f32->name()) return f32;
  if (name == own->name()) return own;
  return absl::InvalidArgumentError(
      absl::StrCat("codec is \"", absl::CEscape(name.substr(0, kQuotedMax)), "\", want ",
                   own->name(), own == f32 ? "" : " or f32"));
}

std::string Describe(const CodecChoice& codecs) {
  return absl::StrCat("pushes as ", codecs.push->name(),
                      codecs.error_feedback ? " with error feedback" : "", ", pulls as ",
                      codecs.pull->name());
}

}  // namespace tessera
