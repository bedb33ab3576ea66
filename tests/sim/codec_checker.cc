#include "tests/sim/codec_checker.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/codec/bf16.h"
#include "common/codec/f16.h"
#include "common/codec/int8.h"
#include "common/codec/selective_codec.h"

namespace tessera {
namespace {

constexpr float kBf16Part = 0x1p-8f;
constexpr float kF16Part = 0x1p-11f;
constexpr float kF16Least = 0x1p-25f;
constexpr float kF16Most = 65504;
// f32 rounds the scale, and its product with a code of up to 127, by which half of a scale is little.
constexpr float kSlack = 1 + 0x1p-14f;

// Of entries [begin, end), which are written in one way. The largest error that each may have.
float LargestError(const Segment& segment, const std::vector<float>& values, size_t begin,
                   size_t end) {
  float most = 0;
  double squares = 0;
  for (size_t i = begin; i < end; ++i) {
    most = std::max(most, std::abs(values[i]));
    squares += static_cast<double>(values[i]) * values[i];
  }
  if (segment.form == &kInt8Form) return kSlack * most / 254;
  const float norm = segment.l2_norm ? static_cast<float>(std::sqrt(squares)) : most;
  return kSlack * norm / segment.divisor;
}

float PlainError(const EntryForm& form, float value) {
  if (&form == &kBf16Form) return kBf16Part * std::abs(value);
  if (&form == &kF16Form) {
    return std::max({kF16Part * std::abs(value), kF16Least, std::abs(value) - kF16Most});
  }
  return 0;
}

}  // namespace

std::optional<std::string> RoundingObjection(const CodedKeys& keys,
                                             const std::vector<float>& values,
                                             const std::vector<float>& seen) {
  size_t at = 0;
  for (const Segment& segment : keys.segments()) {
    for (int64_t done = 0; done < segment.entries;) {
      const int64_t count = segment.BucketAt(done);
      const size_t end = at + static_cast<size_t>(count);
      const float bucket = segment.has_headers() ? LargestError(segment, values, at, end) : 0;
      for (; at < end; ++at) {
        const float error = std::abs(seen[at] - values[at]);
        if (error <= std::max(bucket, PlainError(*segment.form, values[at]))) continue;
        return absl::StrCat("entry ", at, " is ", values[at], ", and a reader sees ", seen[at],
                            " as ", keys.codec()->name());
      }
      done += count;
    }
  }
  return std::nullopt;
}

std::vector<float> CodecChecker::HeldBy(MemberId member, Exchange exchange) const {
  const auto found = held_.find({member, exchange});
  return found == held_.end() ? std::vector<float>() : found->second;
}

CodecChecker::Objection CodecChecker::OnBegins(
    MemberId member, Exchange exchange, const std::optional<std::pair<MemberId, Exchange>>& from,
    const std::vector<float>& held) {
  if (!codecs_.holds_back()) return std::nullopt;
  held_[{member, exchange}] =
      from ? HeldBy(from->first, from->second) : std::vector<float>(held.size());
  return OnHeld(member, exchange, held);
}

CodecChecker::Objection CodecChecker::CheckPart(const SentPart& part,
                                                const std::vector<float>& values,
                                                bool flushes) const {
  if (flushes || part.keys != nullptr) {
    if (part.keys == nullptr || (flushes && part.keys->codec() != Codec())) {
      return "a last push is not f32";
    }
    return RoundingObjection(*part.keys, values, part.seen);
  }
  // Where nobody can say which share is sent tau is fixed.
  const SelectiveCodec& codec = *codecs_.push->selective();
  if (!codec.sent_share().has_value() && part.tau != codec.NewSelector()->limit()) {
    return absl::StrCat("tau is ", part.tau);
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const float want = std::abs(values[i]) >= part.tau ? std::copysign(part.tau, values[i]) : 0.0f;
    if (part.seen[i] == want) continue;
    return absl::StrCat("entry ", i, " is ", values[i], ", and a reader sees ", part.seen[i],
                        ", want ", want, " with a tau of ", part.tau);
  }
  return std::nullopt;
}

CodecChecker::Objection CodecChecker::OnPush(MemberId member, Exchange exchange,
                                             const std::vector<float>& updates,
                                             const std::vector<SentPart>& parts, bool flushes) {
  const std::string where =
      absl::StrCat("member ", member.value(), " exchange ", exchange.value(), ": ");
  std::vector<float> left = updates;
  const std::vector<float> held = HeldBy(member, Exchange(exchange.value() - 1));
  for (size_t i = 0; i < held.size(); ++i) left[i] += held[i];
  std::vector<bool> is_sent(updates.size());
  for (const SentPart& part : parts) {
    std::vector<float> values;
    for (const int64_t number : part.numbers) {
      values.push_back(left[number]);
      if (is_sent[number]) {
        return absl::StrCat(where, "entry ", number, " of the model is sent twice");
      }
      is_sent[number] = true;
    }
    if (const Objection wrong = CheckPart(part, values, flushes)) {
      return absl::StrCat(where, *wrong);
    }
    for (size_t i = 0; i < values.size(); ++i) left[part.numbers[i]] -= part.seen[i];
  }
  if (codecs_.holds_back()) held_[{member, exchange}] = std::move(left);
  return std::nullopt;
}

CodecChecker::Objection CodecChecker::OnHeld(MemberId member, Exchange exchange,
                                             const std::vector<float>& held) const {
  if (!codecs_.holds_back()) return std::nullopt;
  const std::vector<float> want = HeldBy(member, exchange);
  for (size_t i = 0; i < std::max(held.size(), want.size()); ++i) {
    if (i < held.size() && i < want.size() && held[i] == want[i]) continue;
    return absl::StrCat("member ", member.value(), " after exchange ", exchange.value(),
                        ": it holds back ", i < held.size() ? held[i] : 0, " of entry ", i,
                        ", want ", i < want.size() ? want[i] : 0,
                        " by what it was to send and has sent");
  }
  return std::nullopt;
}

CodecChecker::Objection CodecChecker::OnFlushed(MemberId member, Exchange exchange) const {
  if (!codecs_.flush) return std::nullopt;
  const std::vector<float> held = HeldBy(member, exchange);
  if (std::all_of(held.begin(), held.end(), [](float value) { return value == 0; })) {
    return std::nullopt;
  }
  return absl::StrCat("member ", member.value(), " leaves after exchange ", exchange.value(),
                      " with something held back");
}

}  // namespace tessera
