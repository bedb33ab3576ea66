// How large sites' parts should be where slower sites get smaller ones: all are to take equally long
// for a step.
//
// A site's step takes t = c s^p, with s the size of its part, c how slow its machine is, and p between
// 1 (layers from all inputs or to all outputs) and 2 (hidden to hidden). With v = 1 / t its steps per
// second, new sizes are in proportion to
//
//   s v^(1/2)
//
// Between any two sites the difference in log v becomes 1 - p/2 of what it was: half of it for p = 1,
// nothing for p = 2. So p need not be known, nothing overshoots, and an error of measurement moves a
// size by half of it.
#ifndef TESSERA_SERVER_CONTROL_MEMBERS_PART_SIZES_H_
#define TESSERA_SERVER_CONTROL_MEMBERS_PART_SIZES_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"

namespace tessera {

// The mean of shares as integers.
constexpr uint32_t kMeanShare = 1 << 16;

// `sizes`, which are above 0, times the factor that makes their mean 1 where each is then moved into [least, most];
// least is at most 1, most at least.
std::vector<double> BoundedSizes(absl::Span<const double> sizes, double least, double most);

// Shares in proportion to `sizes`, which are above 0, as far as bounds allow: each within
// [kPartLeast, kPartMost] of the mean (common/keyset/subnet.h), and enough for a neuron of a layer of
// `least_width`, which has at least as many as there are sites.
std::vector<uint32_t> BoundedShares(absl::Span<const double> sizes, int64_t least_width);

struct MeasuredSite {
  uint32_t share = kMeanShare;
  double steps_per_second = 0;  // with that share; above 0
};

// New shares, or nullopt where they would not change by more than a difference in speed of a tenth
// makes: all are about as fast, or bounds keep the others where they are.
std::optional<std::vector<uint32_t>> NextShares(absl::Span<const MeasuredSite> sites,
                                                int64_t least_width);

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_MEMBERS_PART_SIZES_H_
