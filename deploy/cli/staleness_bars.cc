#include "deploy/cli/staleness_bars.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tessera {
namespace {

// The lengths that the bar of the greatest share may have, in columns.
constexpr int kBarLengths[] = {10, 6, 3};

// A share in whole percents; what is there but rounds to 0 is told as less than 1.
std::string Share(uint64_t count, uint64_t all) {
  const double percent = 100.0 * count / all;
  if (count > 0 && percent < 0.5) return "<1%";
  return absl::StrFormat("%.0f%%", percent);
}

// "3", "2-3", "64+": the last entry of a full histogram has no upper end.
std::string Label(size_t first, size_t group) {
  const size_t last = first + group - 1;
  if (last >= kStalenessEntries - 1) return absl::StrCat(first, "+");
  return group == 1 ? absl::StrCat(first) : absl::StrCat(first, "-", last);
}

// The bars of groups of `group` values each.
std::string Bars(const Staleness& staleness, size_t group, int length) {
  std::vector<uint64_t> counts((staleness.histogram.size() + group - 1) / group);
  for (size_t i = 0; i < staleness.histogram.size(); ++i) {
    counts[i / group] += staleness.histogram[i];
  }
  const uint64_t most = *std::max_element(counts.begin(), counts.end());
  std::string text;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (text.empty() && counts[i] == 0) continue;
    const double bar = std::ceil(static_cast<double>(length) * counts[i] / most);
    absl::StrAppend(&text, text.empty() ? "" : "  ", Label(i * group, group),
                    counts[i] == 0 ? "" : " ", std::string(static_cast<size_t>(bar), '#'), " ",
                    Share(counts[i], staleness.pushes));
  }
  return text;
}

}  // namespace

std::string StalenessBars(const Staleness& staleness, int width) {
  if (staleness.pushes == 0) return "";
  for (size_t group = 1; group < 2 * kStalenessEntries; group *= 2) {
    for (int length : kBarLengths) {
      std::string text = Bars(staleness, group, length);
      if (static_cast<int>(text.size()) <= width) return text;
    }
  }
  return "";
}

}  // namespace tessera
