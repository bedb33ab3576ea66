#include "deploy/cli/sample/sampler.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/philox.h"

namespace tessera {

absl::StatusOr<int32_t> Sampler::Draw(absl::Span<const float> scores) {
  TESSERA_CHECK(!scores.empty());
  const auto strange =
      std::find_if(scores.begin(), scores.end(), [](float score) { return !std::isfinite(score); });
  if (strange != scores.end()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the model's score of token ", strange - scores.begin(), " is ", *strange,
                     ", want a finite number: it was not trained well"));
  }
  const auto largest = std::max_element(scores.begin(), scores.end());
  const PhiloxBlock words = Philox(seed_, Stream::kSample, 0, drawn_++);
  if (temperature_ == 0) return static_cast<int32_t>(largest - scores.begin());
  cumulated_.clear();
  double sum = 0;
  for (const float score : scores) {
    // At most 1, and 1 for the largest, so that the sum neither overflows nor vanishes.
    sum += std::exp((static_cast<double>(score) - static_cast<double>(*largest)) / temperature_);
    cumulated_.push_back(sum);
  }
  const double u =
      static_cast<double>(words[0]) * 0x1p-64 + static_cast<double>(words[1]) * 0x1p-32;
  const auto above = std::upper_bound(cumulated_.begin(), cumulated_.end(), u * sum);
  // Rounding may make u 1.
  if (above == cumulated_.end()) return static_cast<int32_t>(largest - scores.begin());
  return static_cast<int32_t>(above - cumulated_.begin());
}

}  // namespace tessera
