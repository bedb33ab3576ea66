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

// "1 server", "2 servers".
inline std::string Counted(int64_t count, absl::string_view thing) {
  return absl::StrCat(count, " ", thing, count == 1 ? "" : "s");
}

// A loss or an accuracy; "-" for what is no number, such as the mean of nothing.
inline std::string Fraction(double value) {
  return std::isfinite(value) ? absl::StrFormat("%.4f", value) : "-";
}

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_COUNTED_H_
