#include "common/codec/threshold.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/codec/selective_codec.h"
#include "common/codec/tau.h"
#include "common/codec/threshold_payload.h"

namespace tessera {
namespace {

class ThresholdSelector final : public EntrySelector {
 public:
  explicit ThresholdSelector(const ThresholdNumbers& numbers)
      : tau_(numbers.tau, numbers.density), packed_(numbers.packed) {}

  int64_t sample_size() const override { return tau_.sample_size(); }
  void Learn(std::vector<float> magnitudes) override { tau_.Lead(std::move(magnitudes)); }
  absl::Span<float> state() override { return tau_.state(); }
  std::optional<float> limit() const override { return tau_.value(); }
  std::unique_ptr<SelectionEncoder> NewEncoder() const override {
    return std::make_unique<ThresholdEncoder>(tau_.value(), packed_);
  }

 private:
  Tau tau_;
  const bool packed_;
};

class ThresholdDefinition final : public CodecDefinition, public SelectiveCodec {
 public:
  explicit ThresholdDefinition(const ThresholdNumbers& numbers)
      : CodecDefinition("threshold", Describe(numbers), Traits()), numbers_(numbers) {}

  const SelectiveCodec* selective() const override { return this; }

  std::unique_ptr<EntrySelector> NewSelector() const override {
    // Each push has a tau of its own, which travels in its payload.
    return std::make_unique<ThresholdSelector>(numbers_);
  }
  int64_t BytesMax(int64_t entries) const override { return ThresholdBytesMax(entries); }
  bool packed() const override { return numbers_.packed; }
  absl::Status Check(const Payload& payload, int64_t entries) const override {
    return CheckThresholdPayload(payload, entries, numbers_.packed);
  }
  std::unique_ptr<SelectedReader> NewReader(const Payload& payload) const override {
    return std::make_unique<ThresholdReader>(payload);
  }

  // A place and a sign take four bytes, the head of a payload eight.
  PayloadForecast Forecast(int64_t entries) const override {
    PayloadForecast forecast;
    // With a fixed tau nothing bounds how many entries reach it.
    if (numbers_.tau > 0) {
      forecast.certainty = PayloadForecast::Certainty::kUnknown;
      forecast.sent = "what grows to tau";
      forecast.because = absl::StrCat("threshold.tau is ", numbers_.tau);
      forecast.advice =
          "want 0, as nothing says how many entries would reach it; give threshold.density in its "
          "place";
      return forecast;
    }
    forecast.certainty =
        numbers_.packed ? PayloadForecast::Certainty::kAtMost : PayloadForecast::Certainty::kAbout;
    // Four bytes of each entry sent; packed ones are fewer, by how much depends on the gaps.
    forecast.bytes = 8 + static_cast<int64_t>(4 * numbers_.density * static_cast<double>(entries));
    return forecast;
  }
  std::optional<double> sent_share() const override {
    if (numbers_.tau > 0) return std::nullopt;
    return numbers_.density;
  }

 private:
  static std::string Describe(const ThresholdNumbers& numbers) {
    return absl::StrCat(numbers.tau > 0 ? "tau " : "density ",
                        numbers.tau > 0 ? numbers.tau : numbers.density,
                        numbers.packed ? ", packed" : "");
  }
  static CodecTraits Traits() {
    CodecTraits traits;
    traits.loss = CodecLoss::kUnsent;
    traits.on_devices = true;
    return traits;
  }

  const ThresholdNumbers numbers_;
};

}  // namespace

Codec ThresholdCodec(const ThresholdNumbers& numbers) {
  return Codec(std::make_shared<const ThresholdDefinition>(numbers));
}

}  // namespace tessera
