#include "common/config/nearest_name.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

// The most bytes of a word that is compared. Longer words are no typing errors; the limit also bounds the work.
constexpr size_t kNameBytesMax = 64;

// The name without case, and with underscores for dashes, as flags and keys differ in these alone.
std::string Folded(absl::string_view name) {
  std::string folded = absl::AsciiStrToLower(name);
  std::replace(folded.begin(), folded.end(), '-', '_');
  return folded;
}

// result[j]: the edits from `a` to the first j letters of `b` (optimal string alignment).
std::vector<int> EditsToPrefixes(const std::string& a, const std::string& b) {
  std::vector<std::vector<int>> d(a.size() + 1, std::vector<int>(b.size() + 1));
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    d[i][0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      d[i][j] = std::min(
          {d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()];
}

}  // namespace

std::optional<std::string> NearestName(absl::string_view got,
                                       const std::vector<std::string>& names) {
  if (got.empty() || got.size() > kNameBytesMax) return std::nullopt;
  const std::string a = Folded(got);
  const int edits_max = std::min<int>(std::max<int>(1, a.size() / 3), a.size() - 1);
  std::optional<std::string> nearest;
  int cost_min = 0;
  for (const std::string& name : names) {
    const std::vector<int> edits = EditsToPrefixes(a, Folded(name));
    for (size_t j = 1; j < edits.size(); ++j) {
      if (edits[j] > edits_max) continue;
      const int cost = 4 * edits[j] + static_cast<int>(edits.size() - 1 - j);
      if (!nearest || cost < cost_min) {
        nearest = name;
        cost_min = cost;
      }
    }
  }
  return nearest;
}

std::string DidYouMean(absl::string_view got, const std::vector<std::string>& names) {
  const std::optional<std::string> nearest = NearestName(got, names);
  return nearest ? absl::StrCat("; did you mean \"", *nearest, "\"?") : "";
}

}  // namespace tessera
