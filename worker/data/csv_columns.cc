#include "worker/data/csv_columns.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/charconv.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "worker/data/field.h"

namespace tessera {
namespace {

// In small letters.
constexpr absl::string_view kMissing[] = {"?",    "na",  "n/a", "#n/a", "<na>", "null",
                                          "none", "nil", "-",   "--",   "."};
constexpr absl::string_view kLabelNames[] = {"label", "labels", "class", "target"};
// A label too, but for one beside an x.
constexpr absl::string_view kLabelLetter[] = {"y"};
constexpr absl::string_view kFeatureLetter[] = {"x"};
constexpr size_t kListedColumnsMax = 12;
// The place of a name that several fields have, which tells nothing.
constexpr int64_t kTwice = -1;

template <size_t N>
bool IsOneOf(const absl::string_view (&words)[N], absl::string_view name) {
  return std::any_of(words, words + N,
                     [&](absl::string_view word) { return absl::EqualsIgnoreCase(name, word); });
}

// Returns the name without the quotes that other programs, such as R, write around it.
absl::string_view NameIn(absl::string_view field) {
  field = absl::StripAsciiWhitespace(field);
  for (const absl::string_view quote : {"\"", "'"}) {
    const bool is_quoted =
        field.size() >= 2 && absl::StartsWith(field, quote) && absl::EndsWith(field, quote);
    if (is_quoted) field = absl::StripAsciiWhitespace(field.substr(1, field.size() - 2));
  }
  return field;
}

// Whether the name reads as a number of any size, also one that is not finite. from_chars takes no plus sign.
bool IsNumber(absl::string_view name) {
  absl::ConsumePrefix(&name, "+");
  double value = 0;
  const auto [end, error] = absl::from_chars(name.data(), name.data() + name.size(), value);
  return end == name.data() + name.size() && error != std::errc::invalid_argument;
}

std::vector<std::string> NamesIn(absl::string_view header) {
  // np.savetxt writes its header behind this.
  absl::ConsumePrefix(&header, "#");
  std::vector<std::string> names;
  for (const absl::string_view field : absl::StrSplit(header, ',')) {
    names.emplace_back(NameIn(field));
  }
  return names;
}

std::string List(const std::vector<std::string>& names) {
  const auto end = names.begin() + std::min(names.size(), kListedColumnsMax);
  return QuotedField(
      absl::StrCat(absl::StrJoin(names.begin(), end, ","), end == names.end() ? "" : ",..."));
}

}  // namespace

bool IsCsvHeader(absl::string_view line) {
  for (const absl::string_view field : absl::StrSplit(line, ',')) {
    const absl::string_view name = NameIn(field);
    // A field that is missing or a number belongs to a row.
    if (name.empty() || IsOneOf(kMissing, name) || IsNumber(name)) return false;
  }
  return true;
}

Complaint CsvColumns::BeginFile(const std::string& path, absl::string_view header, int64_t fields) {
  std::vector<std::string> names;
  if (!header.empty()) names = NamesIn(header);
  const auto count = static_cast<int64_t>(names.size());
  // One line of text over the table is a title.
  const bool is_title = count != fields && (count == 1 || absl::StartsWith(header, "#"));
  if (is_title) names.clear();
  if (!names.empty() && count != fields) {
    return absl::StrCat("header has ", count, " fields, want ", fields,
                        " (the product of model.input is ", fields - 1, ", and the label)");
  }
  if (auto wrong = FindLabel(names, fields)) return wrong;
  return CheckOrder(path, names);
}

Complaint CsvColumns::FindLabel(const std::vector<std::string>& names, int64_t fields) {
  label_field_ = label_column_ == "first" ? 0 : fields - 1;
  if (label_column_ == "first" || label_column_ == "last") return std::nullopt;
  // Nothing was said about the label: the last field is it, unless a name says otherwise.
  if (label_column_.empty()) return CheckLastIsLabel(names);
  const auto found = std::find(names.begin(), names.end(), label_column_);
  const auto count = std::count(names.begin(), names.end(), label_column_);
  if (count == 1) {
    label_field_ = found - names.begin();
    return std::nullopt;
  }
  return absl::StrCat(
      names.empty() ? "file has no header" : absl::StrCat("header is ", List(names)),
      ", want one with the name ", QuotedField(label_column_), count > 1 ? " once" : "",
      ", as data.label_column says");
}

Complaint CsvColumns::CheckLastIsLabel(const std::vector<std::string>& names) const {
  const bool has_x = std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return IsOneOf(kFeatureLetter, name);
  });
  const auto is_label = [&](absl::string_view name) {
    // Beside a column x, a column y is a coordinate.
    return IsOneOf(kLabelNames, name) || (!has_x && IsOneOf(kLabelLetter, name));
  };
  if (names.empty() || is_label(names.back())) return std::nullopt;
  for (const std::string& name : names) {
    if (!is_label(name)) continue;
    return absl::StrCat("header has ", QuotedField(name), " and ends with ",
                        QuotedField(names.back()),
                        ", and the last field would be taken for the label; set "
                        "data.label_column to ",
                        name, ", or to last");
  }
  return std::nullopt;
}

Complaint CsvColumns::CheckOrder(const std::string& path, const std::vector<std::string>& names) {
  if (names.empty()) return std::nullopt;
  const bool is_first = place_.empty();
  if (is_first) first_path_ = path;
  for (size_t i = 0; i < names.size(); ++i) {
    const auto place = static_cast<int64_t>(i);
    if (is_first) {
      const bool is_new = place_.emplace(names[i], place).second;
      // A name that is there twice says nothing about order.
      if (!is_new) place_[names[i]] = kTwice;
      continue;
    }
    const auto other = place_.find(names[i]);
    const bool tells = other != place_.end() && other->second != kTwice;
    if (!tells || other->second == place) continue;
    return absl::StrCat("header has ", QuotedField(names[i]), " as field ", i + 1,
                        ", want it as field ", other->second + 1, ", where ", first_path_,
                        " has it: all files have one order of columns");
  }
  return std::nullopt;
}

}  // namespace tessera
