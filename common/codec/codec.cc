#include "common/codec/codec.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace tessera {

bool operator==(const Codec& a, const Codec& b) {
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case CodecKind::kQsgd:
      return a.bits == b.bits && a.bucket == b.bucket && a.l2_norm == b.l2_norm;
    case CodecKind::kThreshold:
      return a.tau == b.tau && a.density == b.density && a.packed == b.packed;
    default:
      return true;
  }
}

bool IsPlain(const Codec& codec) {
  return codec.kind == CodecKind::kF32 || codec.kind == CodecKind::kBf16 ||
         codec.kind == CodecKind::kF16;
}

Codec CodecOf(const v1::Codec& message) {
  Codec codec;
  switch (message.kind_case()) {
    case v1::Codec::kBf16:
      codec.kind = CodecKind::kBf16;
      break;
    case v1::Codec::kF16:
      codec.kind = CodecKind::kF16;
      break;
    case v1::Codec::kInt8:
      codec.kind = CodecKind::kInt8;
      break;
    case v1::Codec::kQsgd:
      codec.kind = CodecKind::kQsgd;
      codec.bits = static_cast<int>(message.qsgd().bits());
      codec.bucket = message.qsgd().bucket();
      codec.l2_norm = message.qsgd().norm() == "l2";
      break;
    case v1::Codec::kThreshold:
      codec.kind = CodecKind::kThreshold;
      codec.tau = message.threshold().tau();
      codec.density = message.threshold().density();
      codec.packed = message.threshold().packed();
      break;
    case v1::Codec::kF32:
    case v1::Codec::KIND_NOT_SET:
      break;
  }
  return codec;
}

std::string Describe(const Codec& codec) {
  switch (codec.kind) {
    case CodecKind::kF32:
      return "f32";
    case CodecKind::kBf16:
      return "bf16";
    case CodecKind::kF16:
      return "f16";
    case CodecKind::kInt8:
      return "int8";
    case CodecKind::kQsgd:
      return absl::StrCat("qsgd (", codec.bits, " bits, buckets of ", codec.bucket, ", ",
                          codec.l2_norm ? "l2" : "max", " norm)");
    case CodecKind::kThreshold:
      break;
  }
  return absl::StrCat("threshold (", codec.tau > 0 ? "tau " : "density ",
                      codec.tau > 0 ? codec.tau : codec.density, codec.packed ? ", packed)" : ")");
}

absl::StatusOr<Codec> NamedCodec(absl::string_view name, const Codec& own) {
  constexpr size_t kQuotedMax = 64;
  if (name.empty() || name == Describe(Codec())) return Codec();
  if (name == Describe(own)) return own;
  return absl::InvalidArgumentError(
      absl::StrCat("codec is \"", absl::CEscape(name.substr(0, kQuotedMax)), "\", want ",
                   Describe(own), own == Codec() ? "" : " or f32"));
}

std::string Describe(const CodecChoice& codecs) {
  return absl::StrCat("pushes as ", Describe(codecs.push),
                      codecs.error_feedback ? " with error feedback" : "", ", pulls as ",
                      Describe(codecs.pull));
}

}  // namespace tessera
