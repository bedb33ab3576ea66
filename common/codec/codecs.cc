#include "common/codec/codecs.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "common/codec/bf16.h"
#include "common/codec/f16.h"
#include "common/codec/f32.h"
#include "common/codec/int8.h"
#include "common/codec/qsgd.h"
#include "common/codec/threshold.h"
#include "common/codec/topk.h"

namespace tessera {
namespace {

Codec Qsgd(const v1::Codec& message) {
  const v1::Qsgd& qsgd = message.qsgd();
  return QsgdCodec(static_cast<int>(qsgd.bits()), qsgd.bucket(), qsgd.norm() == "l2");
}

Codec Threshold(const v1::Codec& message) {
  const v1::Threshold& threshold = message.threshold();
  return ThresholdCodec({threshold.tau(), threshold.density(), threshold.packed()});
}

CodecRemark WrongThreshold(const v1::Codec& message) {
  // It is used as a float, in which less may be 0, and 0 says that it is led.
  constexpr double kTauLeast = 1e-30;
  const double tau = message.threshold().tau();
  if (!(tau > 0 && tau < kTauLeast)) return {};
  return {"threshold.tau",
          absl::StrCat("got ", tau, ", want 0 or a number of at least ", kTauLeast)};
}

CodecRemark IdleThreshold(const v1::Codec& message) {
  const v1::Threshold& threshold = message.threshold();
  if (threshold.tau() == 0 || threshold.density() == ThresholdNumbers().density) return {};
  return {"threshold.density", absl::StrCat(threshold.density(), ": without effect beside tau")};
}

Codec Topk(const v1::Codec& message) {
  // A message without a kind has 0 here, of which nothing is sent.
  return TopkCodec({message.topk().k()});
}

template <Codec (*make)()>
Codec WithoutNumbers(const v1::Codec&) {
  return make();
}

// The codecs of the product. What makes one from its message, and what may be wrong or idle in that message, stands in
// its row.
constexpr CodecEntry kCodecs[] = {
    {v1::Codec::kF32, WithoutNumbers<F32Codec>, nullptr, nullptr},
    {v1::Codec::kBf16, WithoutNumbers<Bf16Codec>, nullptr, nullptr},
    {v1::Codec::kF16, WithoutNumbers<F16Codec>, nullptr, nullptr},
    {v1::Codec::kInt8, WithoutNumbers<Int8Codec>, nullptr, nullptr},
    {v1::Codec::kQsgd, Qsgd, nullptr, nullptr},
    {v1::Codec::kThreshold, Threshold, WrongThreshold, IdleThreshold},
    {v1::Codec::kTopk, Topk, nullptr, nullptr},
};

// nullptr: the message names none.
const CodecEntry* EntryOf(const v1::Codec& message) {
  for (const CodecEntry& entry : kCodecs) {
    if (entry.kind == message.kind_case()) return &entry;
  }
  return nullptr;
}

}  // namespace

absl::Span<const CodecEntry> Codecs() { return kCodecs; }

Codec CodecOf(const v1::Codec& message) {
  const CodecEntry* const entry = EntryOf(message);
  return entry == nullptr ? Codec() : entry->make(message);
}

CodecRemark WrongIn(const v1::Codec& message) {
  const CodecEntry* const entry = EntryOf(message);
  return entry == nullptr || entry->wrong == nullptr ? CodecRemark() : entry->wrong(message);
}

CodecRemark IdleIn(const v1::Codec& message) {
  const CodecEntry* const entry = EntryOf(message);
  return entry == nullptr || entry->idle == nullptr ? CodecRemark() : entry->idle(message);
}

std::string KindsThat(bool (*is)(const CodecDefinition& codec)) {
  std::vector<std::string> kinds;
  for (const CodecEntry& entry : kCodecs) {
    // Traits do not depend on the numbers of a message, so an empty one will do.
    const Codec codec = entry.make(v1::Codec());
    if (is(*codec.operator->())) kinds.push_back(codec->kind());
  }
  std::string text;
  for (size_t i = 0; i < kinds.size(); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : i + 1 < kinds.size() ? ", " : " or ", kinds[i]);
  }
  return text;
}

}  // namespace tessera
