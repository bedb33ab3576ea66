#include "common/codec/tau.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace tessera {
namespace {

// By this part of their difference, as logarithms, tau follows a sample's.
constexpr float kFollow = 1.0f / 3;
// No update's entries lie beyond these bounds; a restored state that does counts as unknown.
constexpr float kTauMin = 0x1p-100f;
constexpr float kTauMax = 0x1p100f;
// A sample has about so many magnitudes above tau, within these bounds.
constexpr double kSampleAbove = 32;
constexpr double kSampleMin = 1024;
constexpr double kSampleMax = 65536;

}  // namespace

Tau::Tau(double fixed, double density)
    : fixed_(std::max(0.0f, static_cast<float>(fixed))), density_(density) {}

bool Tau::is_known() const {
  return state_[1] == 1 && state_[0] >= kTauMin && state_[0] <= kTauMax;
}

float Tau::value() const {
  if (fixed_ > 0) return fixed_;
  // Before anything was seen nothing is sent: the entries stay in the residual until a sample tells a tau.
  return is_known() ? state_[0] : kTauMax;
}

absl::Span<float> Tau::state() { return fixed_ > 0 ? absl::Span<float>() : absl::MakeSpan(state_); }

int64_t Tau::sample_size() const {
  if (fixed_ > 0) return 0;
  // A density of 1 in 1000 takes a sample of 32000 magnitudes, of which the 32nd largest is the estimate.
  return static_cast<int64_t>(std::clamp(kSampleAbove / density_, kSampleMin, kSampleMax));
}

void Tau::Lead(std::vector<float> magnitudes) {
  if (fixed_ > 0) return;
  // The rank is that among all of the sample: zeros count as entries that are not sent.
  const size_t above = static_cast<size_t>(density_ * magnitudes.size());
  const auto is_of_no_use = [](float x) { return !(x > 0) || !std::isfinite(x); };
  magnitudes.erase(std::remove_if(magnitudes.begin(), magnitudes.end(), is_of_no_use),
                   magnitudes.end());
  if (magnitudes.empty()) return;
  const auto found = magnitudes.begin() + std::min(above, magnitudes.size() - 1);
  std::nth_element(magnitudes.begin(), found, magnitudes.end(), std::greater<float>());
  const float quantile = std::clamp(*found, kTauMin, kTauMax);
  const float value = state_[0];
  // Smoothing is multiplicative, as magnitudes of updates range over decades.
  state_[0] = is_known() ? value * std::pow(quantile / value, kFollow) : quantile;
  state_[1] = 1;
}

int64_t SampleDistance(int64_t count, int64_t wanted) {
  // An odd distance has no factor in common with widths that are powers of two.
  return std::max<int64_t>(count / std::max<int64_t>(wanted, 1), 1) | 1;
}

void SampleMagnitudes(const float* update, const float* residual, int64_t count, int64_t wanted,
                      std::vector<float>* magnitudes) {
  const int64_t distance = SampleDistance(count, wanted);
  for (int64_t i = 0; i < count; i += distance) {
    magnitudes->push_back(std::fabs(update[i] + residual[i]));
  }
}

}  // namespace tessera
