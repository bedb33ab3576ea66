#include "common/config/codec_check.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/codec/codecs.h"
#include "common/codec/qsgd.h"

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
  CodecChecker(const Positions& positions, const v1::Job& job, JobErrors* errors)
      : positions_(positions), job_(job), errors_(*errors) {}

  void Check() {
    if (errors_.Touches("codec") || errors_.Touches("method")) return;
    Push();
    Pull();
    AveragedState("codec.push", pair().push());
    AveragedState("codec.pull", pair().pull());
    ErrorFeedback();
    Flush();
  }

 private:
  void Fail(absl::string_view key, absl::string_view message) {
    errors_.Add(PositionOf(positions_, key), key, message);
  }

  // Whether pushes are values, which replace what the servers have, where other payloads are added to it.
  bool sends_values() const { return job_.method().has_ist() || job_.method().has_ensemble(); }
  std::string method() const { return job_.method().has_ist() ? "ist" : "ensemble"; }
  const v1::CodecPair& pair() const { return job_.codec(); }
  // The job leaves codec.push to its method.
  bool push_is_own() const { return pair().push().kind_case() == v1::Codec::KIND_NOT_SET; }
  // What is not sent is held back.
  bool pushes_some() const {
    if (push_is_own()) return job_.method().has_decentralized();
    return CodecOf(pair().push())->selective() != nullptr;
  }

  void Push() {
    if (push_is_own()) return;
    const Codec push = CodecOf(pair().push());
    const CodecRemark wrong = WrongIn(pair().push());
    if (!wrong.message.empty()) Fail(absl::StrCat("codec.push.", wrong.key), wrong.message);
    const bool is_selective = push->selective() != nullptr;
    if (is_selective && sends_values()) {
      Fail("codec.push",
           absl::StrCat("got ", push->kind(), ", want another codec with method ", method(),
                        ": it sends parts of changes, and a push of ", method(),
                        " brings values, all of which replace what is there"));
    }
    if (is_selective && job_.method().has_slim_dp()) {
      Fail("codec.push", absl::StrCat("got ", push->kind(),
                                      ", want another codec with method slim_dp, which chooses the "
                                      "entries that a push moves by itself"));
    }
    if (!job_.method().has_quant_dp()) return;
    const v1::QuantDp& quant = job_.method().quant_dp();
    const Codec own =
        QsgdCodec(static_cast<int>(quant.bits()), quant.bucket(), quant.norm() == "l2");
    if (push == own) return;
    Fail("codec.push",
         absl::StrCat("got ", push->name(), ", want no codec.push with method quant_dp, which has ",
                      own->name(), "; for another codec use data_parallel"));
  }

  void Pull() {
    const Codec pull = CodecOf(pair().pull());
    if (pull->selective() == nullptr) return;
    const std::string others =
        KindsThat([](const CodecDefinition& codec) { return codec.selective() == nullptr; });
    Fail("codec.pull", absl::StrCat("got ", pull->kind(), ", want ", others,
                                    ": it sends parts of changes, and a pull brings values"));
  }

  // Refuses codecs that ruin averaged states: Adam divides by the root of its squares, and one that is rounded to
  // 0 beside a mean that is not makes a step of mean / epsilon. In bf16 every square keeps its size.
  void AveragedState(const std::string& key, const v1::Codec& codec) {
    if (!job_.method().local_sgd().average_state() || errors_.Touches("train.optimizer")) return;
    const bool adamw = job_.train().optimizer().has_adamw();
    if (!adamw && !job_.train().optimizer().has_adam()) return;
    const Codec named = CodecOf(codec);
    if (named->traits().keeps_small || errors_.Touches(key)) return;
    const std::string others =
        KindsThat([](const CodecDefinition& other) { return other.traits().keeps_small; });
    Fail(key,
         absl::StrCat("got ", named->name(), ", want ", others, " with ", adamw ? "adamw" : "adam",
                      " and method.local_sgd.average_state: it makes small squares of gradients 0, "
                      "and a step divides by their root; with average_state false it is welcome"));
  }

  void ErrorFeedback() {
    if (!pair().error_feedback()) return;
    const std::string key = "codec.error_feedback";
    if (sends_values()) {
      return Fail(key, absl::StrCat("got true, want false with method ", method(),
                                    ": it corrects sums of changes, and a push of ", method(),
                                    " brings values"));
    }
    const Codec push = CodecOf(pair().push());
    const std::string idle = WhyNoFeedback(push->traits().loss);
    if (idle.empty()) return;
    // Where f32 is pushed a method may still hold entries back.
    if (push != Codec()) {
      return Fail(key, absl::StrCat("got true, want false with codec.push ", push->kind(), idle));
    }
    if (pushes_some()) {
      return Fail(
          key,
          "got true, want false with method decentralized, whose codec, threshold, keeps what "
          "it does not send by itself");
    }
    if (job_.method().has_quant_dp()) {
      return Fail(key, "got true, want false with method quant_dp: qsgd's rounding has no bias");
    }
    // With slim_dp even f32 holds something back: the entries that an exchange does not move.
    if (job_.method().has_slim_dp()) return;
    Fail(key, absl::StrCat("got true, want false with codec.push ", push->kind(), idle));
  }

  void Flush() {
    if (!pair().flush() || pair().error_feedback() || pushes_some()) return;
    const std::string some =
        KindsThat([](const CodecDefinition& codec) { return codec.selective() != nullptr; });
    Fail("codec.flush",
         absl::StrCat("got true, want false: with this codec.push nothing is held back that a last "
                      "push could bring; that is so of ",
                      some, ", and with error_feedback"));
  }

  const Positions& positions_;
  const v1::Job& job_;
  JobErrors& errors_;
};

}  // namespace

void CheckCodecs(const Positions& positions, const v1::Job& job, JobErrors* errors) {
  CodecChecker(positions, job, errors).Check();
}

}  // namespace tessera
