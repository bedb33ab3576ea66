#include "server/control/members/part_sizes.h"

#include <algorithm>
#include <cmath>

#include "common/base/check.h"
#include "common/keyset/subnet.h"

namespace tessera {
namespace {

// Sites as fast as each other within this factor are left alone.
constexpr double kAlike = 1.1;
// What rounding to integers may take from a share, and to spare.
constexpr double kRounding = 1 + 1.0 / 1024;
constexpr int kBisections = 50;

}  // namespace

std::vector<double> BoundedSizes(absl::Span<const double> sizes, double least, double most) {
  const auto bounded = [&](double factor, double size) {
    return std::clamp(factor * size, least, most);
  };
  // The sum grows with the factor, from all at the least to all at the most.
  const auto [smallest, largest] = std::minmax_element(sizes.begin(), sizes.end());
  TESSERA_CHECK(*smallest > 0);
  double low = least / *largest, high = most / *smallest;
  for (int i = 0; i < kBisections; ++i) {
    const double factor = std::sqrt(low * high);
    double sum = 0;
    for (const double size : sizes) sum += bounded(factor, size);
    (sum < static_cast<double>(sizes.size()) ? low : high) = factor;
  }
  std::vector<double> result;
  for (const double size : sizes) result.push_back(bounded(high, size));
  return result;
}

std::vector<uint32_t> BoundedShares(absl::Span<const double> sizes, int64_t least_width) {
  const auto count = static_cast<double>(sizes.size());
  const double least = std::max(kPartLeast, count / static_cast<double>(least_width) * kRounding);
  if (least >= 1) return std::vector<uint32_t>(sizes.size(), kMeanShare);
  std::vector<uint32_t> shares;
  for (const double size : BoundedSizes(sizes, least, kPartMost)) {
    shares.push_back(static_cast<uint32_t>(std::llround(size * kMeanShare)));
  }
  return shares;
}

std::optional<std::vector<uint32_t>> NextShares(absl::Span<const MeasuredSite> sites,
                                                int64_t least_width) {
  if (sites.size() < 2) return std::nullopt;
  std::vector<double> sizes;
  for (const MeasuredSite& site : sites) {
    sizes.push_back(site.share * std::sqrt(site.steps_per_second));
  }
  std::vector<uint32_t> shares = BoundedShares(sizes, least_width);
  double least = static_cast<double>(shares[0]) / sites[0].share, most = least;
  for (size_t i = 1; i < sites.size(); ++i) {
    const double change = static_cast<double>(shares[i]) / sites[i].share;
    least = std::min(least, change);
    most = std::max(most, change);
  }
  if (most <= std::sqrt(kAlike) * least) return std::nullopt;
  return shares;
}

}  // namespace tessera
