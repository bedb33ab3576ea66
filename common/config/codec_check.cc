#include "common/config/codec_check.h"

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/codec/codecs.h"
#include "common/config/key_errors.h"
#include "common/layout/tensor_layout.h"
#include "common/method/catalog.h"

namespace tessera {
namespace {

// Why error feedback has nothing to do, behind a codec's name; empty: it has.
const char* WhyNoFeedback(CodecLoss loss) {
  switch (loss) {
    case CodecLoss::kNone:
      return ", which loses nothing";
    case CodecLoss::kUnbiased:
      return ": its rounding has no bias to correct, and what is held back would only add to the "
             "noise";
    case CodecLoss::kUnsent:
      return ", which keeps what it does not send by itself";
    case CodecLoss::kBiased:
      break;
  }
  return "";
}

class CodecChecker {
 public:
  CodecChecker(const v1::CodecPair& pair, const Method& method, const Recipe& recipe,
               KeyErrors errors)
      : pair_(pair), method_(method), recipe_(recipe), errors_(errors) {}

  void Check() {
    Push();
    Pull();
    ErrorFeedback();
    Flush();
  }

 private:
  // Whether pushes are values, which replace what the servers have, where other payloads are added to it.
  bool sends_values() const { return recipe_.payload == PayloadKind::kValue; }
  // The job leaves codec.push to its method.
  bool push_is_own() const { return pair_.push().kind_case() == v1::Codec::KIND_NOT_SET; }
  // The codec that pushes have.
  Codec push() const { return push_is_own() ? recipe_.codecs.push : CodecOf(pair_.push()); }

  void Push() {
    if (push_is_own()) return;
    const CodecRemark wrong = WrongIn(pair_.push());
    if (!wrong.message.empty()) {
      errors_.Add(absl::StrCat("codec.push.", wrong.key), wrong.message);
    }
    if (push()->selective() == nullptr || !sends_values()) return;
    errors_.Add("codec.push",
                absl::StrCat("got ", push()->kind(), ", want another codec with method ",
                             recipe_.name, ": it sends parts of changes, and a push of ",
                             recipe_.name, " brings values, all of which replace what is there"));
  }

  void Pull() {
    const Codec pull = CodecOf(pair_.pull());
    if (pull->selective() == nullptr) return;
    const std::string others =
        KindsThat([](const CodecDefinition& codec) { return codec.selective() == nullptr; });
    errors_.Add("codec.pull",
                absl::StrCat("got ", pull->kind(), ", want ", others,
                             ": it sends parts of changes, and a pull brings values"));
  }

  void ErrorFeedback() {
    if (!pair_.error_feedback()) return;
    const std::string key = "codec.error_feedback";
    if (sends_values()) {
      return errors_.Add(key, absl::StrCat("got true, want false with method ", recipe_.name,
                                           ": it corrects sums of changes, and a push of ",
                                           recipe_.name, " brings values"));
    }
    const std::string idle = WhyNoFeedback(push()->traits().loss);
    if (idle.empty() || (push() == Codec() && method_.moves_some_entries)) return;
    const bool is_chosen = push_is_own() && push() != Codec();
    errors_.Add(key,
                absl::StrCat("got true, want false with ",
                             is_chosen ? absl::StrCat("method ", recipe_.name, ", whose codec is ")
                                       : "codec.push ",
                             push()->kind(), idle));
  }

  void Flush() {
    if (!pair_.flush() || pair_.error_feedback() || push()->selective() != nullptr) return;
    const std::string some =
        KindsThat([](const CodecDefinition& codec) { return codec.selective() != nullptr; });
    errors_.Add(
        "codec.flush",
        absl::StrCat("got true, want false: with this codec.push nothing is held back that a last "
                     "push could bring; that is so of ",
                     some, ", and with error_feedback"));
  }

  const v1::CodecPair& pair_;
  const Method& method_;
  const Recipe& recipe_;
  KeyErrors errors_;
};

}  // namespace

void CheckCodecs(const Positions& positions, const v1::Job& job, JobErrors* errors) {
  const KeyErrors keys(positions, errors);
  const Method* const method = MethodOf(job);
  if (!keys.Sound("codec") || !keys.Sound("method") || method == nullptr) return;
  // A method that cannot be had with this model is refused for that.
  if (IsOfTensors(job.model()) && method->why_layers != nullptr) return;
  const absl::StatusOr<Recipe> recipe = method->recipe(job);
  if (recipe.ok()) CodecChecker(job.codec(), *method, *recipe, keys).Check();
}

}  // namespace tessera
