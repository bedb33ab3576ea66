// Numbers for people.
#ifndef TESSERA_DEPLOY_CLI_COUNTED_H_
#define TESSERA_DEPLOY_CLI_COUNTED_H_

#include <cmath>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

namespace tessera {

// A number with its noun: "1 server", "2 servers".
inline std::string Counted(int64_t count, absl::string_view thing) {
  return absl::StrCat(count, " ", thing, count == 1 ? "" : "s");
}

// A loss or an accuracy, at most ten characters; "-" for what is no number, such as the mean of nothing.
inline std::string Fraction(double value) {
  if (!std::isfinite(value)) return "-";
  return std::fabs(value) < 9999.5 ? absl::StrFormat("%.4f", value)
                                   : absl::StrFormat("%.4g", value);
}

// A number of bytes: "512 B", "15.3 MiB".
inline std::string Bytes(double bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  while (bytes >= 1024 && unit < 4) {
    bytes /= 1024;
    ++unit;
  }
  return absl::StrFormat("%.*f %s", unit == 0 ? 0 : 1, bytes, kUnits[unit]);
}

// A whole number: "1,234,567".
inline std::string Thousands(double value) {
  std::string digits = absl::StrFormat("%.0f", value);
  for (int i = static_cast<int>(digits.size()) - 3; i > (digits[0] == '-' ? 1 : 0); i -= 3) {
    digits.insert(i, ",");
  }
  return digits;
}

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_COUNTED_H_
