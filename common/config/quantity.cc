#include "common/config/quantity.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace tessera {
namespace {

struct SizeUnit {
  const char* name;
  int64_t bytes;
};

// The units of size, largest first, as FormatSize wants them.
constexpr SizeUnit kBinaryUnits[] = {
    {"TiB", int64_t{1} << 40},
    {"GiB", int64_t{1} << 30},
    {"MiB", int64_t{1} << 20},
    {"KiB", int64_t{1} << 10},
};
constexpr SizeUnit kDecimalUnits[] = {
    {"TB", 1000000000000}, {"GB", 1000000000}, {"MB", 1000000}, {"kB", 1000},
    {"KB", 1000},          {"B", 1},           {"", 1},
};

bool IsDigits(absl::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return absl::ascii_isdigit(c); });
}

absl::string_view WithoutSign(absl::string_view text) {
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  return text;
}

// The bytes of a unit; nothing for a text that is no unit.
std::optional<int64_t> UnitBytes(absl::string_view unit) {
  for (const SizeUnit& known : kBinaryUnits) {
    if (unit == known.name) return known.bytes;
  }
  for (const SizeUnit& known : kDecimalUnits) {
    if (unit == known.name) return known.bytes;
  }
  return std::nullopt;
}

}  // namespace

std::optional<int64_t> ParseInteger(absl::string_view text) {
  int64_t value = 0;
  if (!IsDigits(WithoutSign(text)) || !absl::SimpleAtoi(text, &value)) return std::nullopt;
  return value;
}

std::optional<uint64_t> ParseUnsigned(absl::string_view text) {
  uint64_t value = 0;
  if (!IsDigits(text) || !absl::SimpleAtoi(text, &value)) return std::nullopt;
  return value;
}

std::optional<double> ParseNumber(absl::string_view text) {
  // Keeps out what SimpleAtod reads beyond decimals: inf, nan, hexadecimal, blanks.
  const bool decimal = std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isdigit(c) || c == '.' || c == 'e' || c == 'E' || c == '-' || c == '+';
  });
  double value = 0;
  if (!decimal || !absl::SimpleAtod(text, &value) || !std::isfinite(value)) return std::nullopt;
  return value == 0 ? 0 : value;
}

std::string FormatNumber(double value) {
  char buffer[32];
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer), value);
  return std::string(buffer, result.ptr);
}

std::optional<int64_t> ParseDuration(absl::string_view text) {
  absl::Duration duration;
  if (!absl::ParseDuration(text, &duration)) return std::nullopt;
  const absl::Duration limit = absl::Nanoseconds(std::numeric_limits<int64_t>::max());
  if (duration > limit || duration < -limit) return std::nullopt;
  return absl::ToInt64Nanoseconds(duration);
}

std::string FormatDuration(int64_t nanoseconds) {
  return absl::FormatDuration(absl::Nanoseconds(nanoseconds));
}

std::optional<int64_t> ParseSize(absl::string_view text) {
  const absl::string_view unsigned_text = WithoutSign(text);
  const auto unit_begin = std::find_if_not(unsigned_text.begin(), unsigned_text.end(),
                                           [](char c) { return absl::ascii_isdigit(c); });
  const size_t count_end = text.size() - (unsigned_text.end() - unit_begin);
  const std::optional<int64_t> count = ParseInteger(text.substr(0, count_end));
  const std::optional<int64_t> unit =
      UnitBytes(absl::StripLeadingAsciiWhitespace(text.substr(count_end)));
  int64_t bytes = 0;
  if (!count || !unit || __builtin_mul_overflow(*count, *unit, &bytes)) return std::nullopt;
  return bytes;
}

std::string FormatSize(int64_t bytes) {
  for (const SizeUnit& unit : kBinaryUnits) {
    if (bytes != 0 && bytes % unit.bytes == 0) return absl::StrCat(bytes / unit.bytes, unit.name);
  }
  return absl::StrCat(bytes);
}

}  // namespace tessera
