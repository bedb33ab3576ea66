#include "deploy/cli/curves/plot_table.h"

#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "common/base/printable.h"
#include "common/config/named_path.h"

namespace tessera {
namespace {

constexpr absl::string_view kWanted =
    "a title of x and the labels of lines, with commas between them";

// A number; an empty field is none.
absl::StatusOr<double> NumberOf(absl::string_view field, size_t line) {
  double number = std::numeric_limits<double>::quiet_NaN();
  if (field.empty() || absl::SimpleAtod(field, &number)) return number;
  return absl::InvalidArgumentError(absl::StrCat("line ", line, ": got \"", ToPrintable(field),
                                                 "\", want a number, or nothing for a gap"));
}

std::vector<absl::string_view> FieldsOf(absl::string_view line) {
  std::vector<absl::string_view> fields = absl::StrSplit(line, ',');
  for (absl::string_view& field : fields) field = absl::StripAsciiWhitespace(field);
  return fields;
}

}  // namespace

absl::StatusOr<PlotTable> ParsePlotTable(absl::string_view text) {
  PlotTable table;
  size_t number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    const absl::string_view stripped = absl::StripAsciiWhitespace(line);
    if (stripped.empty() || stripped.front() == '#') continue;
    const std::vector<absl::string_view> fields = FieldsOf(stripped);
    if (table.lines.empty()) {
      if (fields.size() < 2) {
        return absl::InvalidArgumentError(
            absl::StrCat("line ", number, ": got \"", ToPrintable(stripped), "\", want ", kWanted));
      }
      table.x_title = std::string(fields[0]);
      for (size_t i = 1; i < fields.size(); ++i) {
        table.lines.push_back({std::string(fields[i]), {}});
      }
      continue;
    }
    if (fields.size() != table.lines.size() + 1) {
      return absl::InvalidArgumentError(absl::StrCat("line ", number, ": got ", fields.size(),
                                                     " fields, want ", table.lines.size() + 1,
                                                     " as in the line of titles"));
    }
    TESSERA_ASSIGN_OR_RETURN(const double x, NumberOf(fields[0], number));
    for (size_t i = 1; i < fields.size(); ++i) {
      TESSERA_ASSIGN_OR_RETURN(const double y, NumberOf(fields[i], number));
      table.lines[i - 1].points.push_back({x, y});
    }
  }
  if (table.lines.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("line 1: got nothing, want ", kWanted));
  }
  return table;
}

absl::StatusOr<PlotTable> ReadPlotTable(const std::string& path) {
  if (const std::string reason = WhyNoFile(path); !reason.empty()) {
    return absl::NotFoundError(
        absl::StrCat("--table: got \"", path, "\", want a CSV file; ", reason));
  }
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  absl::StatusOr<PlotTable> table = ParsePlotTable(text);
  if (table.ok()) return table;
  return absl::InvalidArgumentError(
      absl::StrCat("--table: ", path, ": ", table.status().message()));
}

}  // namespace tessera
