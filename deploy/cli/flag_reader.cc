#include "deploy/cli/flag_reader.h"

#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/config/quantity.h"

namespace tessera {

std::optional<int64_t> ParseBandwidth(absl::string_view text) {
  if (!absl::ConsumeSuffix(&text, "bit")) {
    const std::optional<int64_t> bytes = ParseSize(text);
    // A number without a unit is refused, as whoever leaves it out may have meant bits.
    const bool has_unit = bytes && !absl::ascii_isdigit(text.back());
    return has_unit || bytes == 0 ? bytes : std::nullopt;
  }
  struct Unit {
    char letter;
    double bits;
  };
  double bits = 1;
  for (const Unit unit : {Unit{'k', 1e3}, Unit{'M', 1e6}, Unit{'G', 1e9}, Unit{'T', 1e12}}) {
    if (text.empty() || text.back() != unit.letter) continue;
    text.remove_suffix(1);
    bits = unit.bits;
    break;
  }
  const std::optional<double> value = ParseNumber(text);
  // A rate of less than a byte per second is refused: such a link is none.
  if (!value || *value * bits > 8e15 || *value * bits < 8) return std::nullopt;
  return static_cast<int64_t>(*value * bits / 8);
}

int64_t FlagReader::Bandwidth(absl::string_view flag, const std::string& text) {
  const std::optional<int64_t> value = ParseBandwidth(text);
  if (!value || *value < 0)
    Refuse(flag, text,
           absl::StrCat("a bandwidth such as 1.5Gbit, in bit, kbit, Mbit, Gbit or Tbit, or 100MB, ",
                        kSizeUnits, ", or 0"));
  return value.value_or(0);
}

int64_t FlagReader::Duration(absl::string_view flag, const std::string& text, const char* or_else) {
  const std::optional<int64_t> value = ParseDuration(text);
  if (!value || *value < 0) Refuse(flag, text, absl::StrCat("a duration such as 20ms", or_else));
  return value.value_or(0);
}

double FlagReader::Share(absl::string_view flag, double value) {
  if (!(value >= 0 && value < 1)) Refuse(flag, absl::StrCat(value), "a number in [0, 1)");
  return value;
}

double FlagReader::Rate(absl::string_view flag, double value) {
  if (!(value >= 0) || !std::isfinite(value)) {
    Refuse(flag, absl::StrCat(value), "a number of crashes per worker and hour, 0 or more");
  }
  return value;
}

int FlagReader::Count(absl::string_view flag, int value) {
  if (value < 0) Refuse(flag, absl::StrCat(value), "a number, 0 or more");
  return value;
}

std::optional<int> FlagReader::Between(absl::string_view flag, const std::optional<int>& value,
                                       int least, int most) {
  if (!value || (*value >= least && *value <= most)) return value;
  Refuse(flag, absl::StrCat(*value), absl::StrCat("a number, ", least, " to ", most));
  return std::nullopt;
}

double FlagReader::Number(absl::string_view flag, double value, double least, double most) {
  if (!(value >= least && value <= most)) {
    Refuse(flag, absl::StrCat(value), absl::StrCat("a number, ", least, " to ", most));
  }
  return value;
}

void FlagReader::Refuse(absl::string_view flag, const std::string& got, absl::string_view want) {
  absl::StrAppend(&errors_, program_, ": --", flag, ": got \"", got, "\", want ", want, "; see ",
                  program_, " --help\n");
}

}  // namespace tessera
