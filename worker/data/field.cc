#include "worker/data/field.h"

#include <charconv>
#include <cmath>
#include <system_error>

#include "absl/strings/charconv.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace tessera {
namespace {

// Long fields are cut in messages, of which the first characters tell enough.
constexpr size_t kQuotedBytesMax = 40;
// A number of this many decimal digits is exact in a float.
constexpr size_t kExactDigits = 7;
// Whole numbers below are exact in a double.
constexpr double kExactMax = 0x1p53;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Returns the field without a plus sign, which from_chars refuses, unless another sign follows.
absl::string_view WithoutPlus(absl::string_view field) {
  if (field.size() > 1 && field[0] == '+' && field[1] != '-' && field[1] != '+') {
    field.remove_prefix(1);
  }
  return field;
}

// Most fields of most files: pixels and counts.
std::optional<float> ParseShortCount(absl::string_view field) {
  if (field.empty() || field.size() > kExactDigits) return std::nullopt;
  int32_t value = 0;
  for (const char c : field) {
    if (!IsDigit(c)) return std::nullopt;
    value = 10 * value + (c - '0');
  }
  return static_cast<float>(value);
}

}  // namespace

std::optional<float> ParseFloatField(absl::string_view field) {
  if (const std::optional<float> count = ParseShortCount(field)) return count;
  field = WithoutPlus(field);
  // from_chars takes hexadecimal too.
  if (field.find_first_of("xX") != absl::string_view::npos) return std::nullopt;
  float value = 0;
  const auto [end, error] = absl::from_chars(field.data(), field.data() + field.size(), value);
  if (end != field.data() + field.size() || error == std::errc::invalid_argument) {
    return std::nullopt;
  }
  // Out of range is also what is too small, which is taken as it comes.
  if (error == std::errc::result_out_of_range && std::abs(value) > 1) return std::nullopt;
  if (!std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<int64_t> ParseIntegerField(absl::string_view field) {
  field = WithoutPlus(field);
  const size_t point = field.find('.');
  // "3.0" is an integer, "3.5" is none.
  if (point != absl::string_view::npos) {
    const absl::string_view fraction = field.substr(point + 1);
    if (fraction.find_first_not_of('0') != absl::string_view::npos) return std::nullopt;
    field = field.substr(0, point);
  }
  int64_t value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (error != std::errc() || end != field.data() + field.size()) return std::nullopt;
  return value;
}

std::optional<int64_t> ParseLabelField(absl::string_view field) {
  const std::optional<int64_t> plain = ParseIntegerField(field);
  if (plain.has_value() || field.find_first_of("eE") == absl::string_view::npos) return plain;
  field = WithoutPlus(field);
  // from_chars takes hexadecimal too.
  if (field.find_first_of("xX") != absl::string_view::npos) return std::nullopt;
  double value = 0;
  const auto [end, error] = absl::from_chars(field.data(), field.data() + field.size(), value);
  if (error != std::errc() || end != field.data() + field.size()) return std::nullopt;
  // NaN fails the comparison.
  if (!(std::abs(value) < kExactMax) || value != std::floor(value)) return std::nullopt;
  return static_cast<int64_t>(value);
}

std::string QuotedField(absl::string_view field) {
  const bool cut = field.size() > kQuotedBytesMax;
  return absl::StrCat("\"", absl::CHexEscape(field.substr(0, kQuotedBytesMax)), cut ? "..." : "",
                      "\"");
}

}  // namespace tessera
