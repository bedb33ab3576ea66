#include "common/config/codec_check.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/codec/codec.h"

namespace tessera {
namespace {

// The least threshold: tau is used as a float, in which less may be 0, and 0 says that the threshold is led.
constexpr double kTauLeast = 1e-30;

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
  bool pushes_threshold() const {
    const bool is_own = pair().push().kind_case() == v1::Codec::KIND_NOT_SET;
    return pair().push().has_threshold() || (is_own && job_.method().has_decentralized());
  }

  void Push() {
    if (pair().push().kind_case() == v1::Codec::KIND_NOT_SET) return;
    const Codec push = CodecOf(pair().push());
    if (push.kind == CodecKind::kThreshold && push.tau > 0 && push.tau < kTauLeast) {
      Fail("codec.push.threshold.tau",
           absl::StrCat("got ", push.tau, ", want 0 or a number of at least ", kTauLeast));
    }
    if (push.kind == CodecKind::kThreshold && sends_values()) {
      Fail("codec.push", absl::StrCat("got threshold, want another codec with method ", method(),
                                      ": it sends parts of changes, and a push of ", method(),
                                      " brings values, all of which replace what is there"));
    }
    if (push.kind == CodecKind::kThreshold && job_.method().has_slim_dp()) {
      Fail("codec.push",
           "got threshold, want another codec with method slim_dp, which chooses the entries "
           "that a push moves by itself");
    }
    if (!job_.method().has_quant_dp()) return;
    const v1::QuantDp& quant = job_.method().quant_dp();
    Codec own;
    own.kind = CodecKind::kQsgd;
    own.bits = static_cast<int>(quant.bits());
    own.bucket = quant.bucket();
    own.l2_norm = quant.norm() == "l2";
    if (push == own) return;
    Fail("codec.push", absl::StrCat("got ", Describe(push),
                                    ", want no codec.push with method quant_dp, which has ",
                                    Describe(own), "; for another codec use data_parallel"));
  }

  void Pull() {
    if (!pair().pull().has_threshold()) return;
    Fail("codec.pull",
         "got threshold, want f32, bf16, f16, int8 or qsgd: it sends parts of changes, and a pull "
         "brings values");
  }

  // Refuses codecs that ruin averaged states: Adam divides by the root of its squares, and one that is rounded to
  // 0 beside a mean that is not makes a step of mean / epsilon. In bf16 every square keeps its size.
  void AveragedState(const std::string& key, const v1::Codec& codec) {
    if (!job_.method().local_sgd().average_state() || errors_.Touches("train.optimizer")) return;
    const bool adamw = job_.train().optimizer().has_adamw();
    if (!adamw && !job_.train().optimizer().has_adam()) return;
    const CodecKind kind = CodecOf(codec).kind;
    if (kind == CodecKind::kF32 || kind == CodecKind::kBf16 || errors_.Touches(key)) return;
    Fail(key,
         absl::StrCat(
             "got ", Describe(CodecOf(codec)), ", want f32 or bf16 with ", adamw ? "adamw" : "adam",
             " and method.local_sgd.average_state: it makes small squares of gradients 0, and a "
             "step divides by their root; with average_state false it is welcome"));
  }

  void ErrorFeedback() {
    if (!pair().error_feedback()) return;
    const std::string key = "codec.error_feedback";
    if (sends_values()) {
      return Fail(key, absl::StrCat("got true, want false with method ", method(),
                                    ": it corrects sums of changes, and a push of ", method(),
                                    " brings values"));
    }
    switch (pair().push().kind_case()) {
      case v1::Codec::kBf16:
      case v1::Codec::kF16:
      case v1::Codec::kInt8:
        return;
      case v1::Codec::kThreshold:
        return Fail(key,
                    "got true, want false with codec.push threshold, which keeps what it does not "
                    "send by itself");
      case v1::Codec::kQsgd:
        return Fail(key,
                    "got true, want false with codec.push qsgd: its rounding has no bias to "
                    "correct, and what is held back would only add to the noise");
      default:
        break;
    }
    if (pushes_threshold()) {
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
    Fail(key, "got true, want false with codec.push f32, which loses nothing");
  }

  void Flush() {
    if (!pair().flush() || pair().error_feedback() || pushes_threshold()) return;
    Fail("codec.flush",
         "got true, want false: with this codec.push nothing is held back that a last push could "
         "bring; that is so of threshold, and with error_feedback");
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
