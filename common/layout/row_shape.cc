#include "common/layout/row_shape.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tessera {
namespace {

using Sizes = std::vector<int64_t>;

// Axes of `wanted` that have an order: their number is that of the exchanges to try.
constexpr size_t kOrderedAxesMax = 4;

Sizes WithoutOnes(absl::Span<const int64_t> sizes) {
  Sizes kept;
  std::copy_if(sizes.begin(), sizes.end(), std::back_inserter(kept),
               [](int64_t size) { return size != 1; });
  return kept;
}

// The values that lie between two neighbours along an axis, and all of them: what flattening leaves out, but adds
// nothing to.
Sizes Strides(absl::Span<const int64_t> sizes) {
  Sizes strides = {1};
  for (size_t i = sizes.size(); i > 0; --i) {
    if (sizes[i - 1] != 1) strides.push_back(strides.back() * sizes[i - 1]);
  }
  return strides;
}

// Pairs that changed places. Of two exchanges that fit, the one with fewer is likelier: rows of an image come
// before its columns in all files.
int Inversions(const std::vector<int>& order) {
  int count = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    for (size_t j = i + 1; j < order.size(); ++j) count += order[i] > order[j] ? 1 : 0;
  }
  return count;
}

}  // namespace

bool IsSameOrder(absl::Span<const int64_t> row, absl::Span<const int64_t> wanted) {
  const Sizes a = Strides(row), b = Strides(wanted);
  return std::includes(a.begin(), a.end(), b.begin(), b.end()) ||
         std::includes(b.begin(), b.end(), a.begin(), a.end());
}

std::string TransposeTo(absl::Span<const int64_t> row, absl::Span<const int64_t> wanted) {
  const Sizes want = WithoutOnes(wanted);
  if (want.size() > kOrderedAxesMax) return "";
  // Axis i of what the rows seem to be is axis order[i] of what is wanted.
  std::vector<int> order(want.size()), best;
  std::iota(order.begin(), order.end(), 0);
  Sizes seems(want.size());
  const auto look = [&] {
    for (size_t i = 0; i < order.size(); ++i) seems[i] = want[order[i]];
  };
  do {
    look();
    const bool better = best.empty() || Inversions(order) < Inversions(best);
    if (better && IsSameOrder(row, seems)) best = order;
  } while (std::next_permutation(order.begin(), order.end()));
  if (best.empty()) return "";
  order = best;
  look();
  std::vector<size_t> axes(want.size());
  for (size_t i = 0; i < order.size(); ++i) axes[order[i]] = i + 1;
  const bool as_it_is = std::equal(row.begin(), row.end(), seems.begin(), seems.end());
  return absl::StrCat(
      "x", as_it_is ? "" : absl::StrCat(".reshape(-1, ", absl::StrJoin(seems, ", "), ")"),
      ".transpose(0, ", absl::StrJoin(axes, ", "), ")");
}

std::string ShapeText(absl::Span<const int64_t> sizes) {
  return absl::StrCat("[", absl::StrJoin(sizes, ", "), "]");
}

}  // namespace tessera
