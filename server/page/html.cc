#include "server/page/html.h"

#include <cmath>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "common/base/printable.h"
#include "common/base/utf8.h"

namespace tessera {

std::string Escaped(absl::string_view text) {
  return absl::StrReplaceAll(
      ToPrintable(text),
      {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

std::string Escaped(absl::string_view text, size_t bytes_max) {
  std::string escaped = Escaped(CutText(text, bytes_max));
  // One character may become six.
  return escaped.size() <= bytes_max + 3 ? escaped : Escaped(CutText(text, bytes_max / 6));
}

std::string Grouped(uint64_t count) {
  std::string text = absl::StrCat(count);
  for (size_t i = text.size(); i > 3; i -= 3) text.insert(i - 3, ",");
  return text;
}

std::string Short(double number) {
  if (!std::isfinite(number)) return kNotKnown;
  constexpr const char* kUnits[] = {"", "k", "M", "G", "T", "P"};
  size_t unit = 0;
  while (std::abs(number) >= 999.5 && unit + 1 < sizeof(kUnits) / sizeof(kUnits[0])) {
    number /= 1000;
    ++unit;
  }
  return absl::StrCat(absl::StrFormat("%.3g", number), kUnits[unit]);
}

std::string ShortBytes(double bytes) {
  if (!std::isfinite(bytes)) return kNotKnown;
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (bytes >= 1023.5 && unit + 1 < sizeof(kUnits) / sizeof(kUnits[0])) {
    bytes /= 1024;
    ++unit;
  }
  const int places = bytes < 100 && unit > 0 ? 1 : 0;
  return absl::StrFormat("%.*f %s", places, bytes, kUnits[unit]);
}

std::string ShortSeconds(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return kNotKnown;
  if (seconds < 100) return absl::StrFormat("%.1f s", seconds);
  const auto whole = static_cast<int64_t>(std::min(seconds, 1e15));
  if (whole < 3600) return absl::StrFormat("%d m %d s", whole / 60, whole % 60);
  return absl::StrFormat("%d h %d m", whole / 3600, whole / 60 % 60);
}

std::string Decimal(double number) {
  if (!std::isfinite(number)) return kNotKnown;
  return std::abs(number) >= 1000 ? Short(number) : absl::StrFormat("%.4f", number);
}

}  // namespace tessera
