#include "worker/data/csv.h"

#include <algorithm>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "worker/data/byte_source.h"
#include "worker/data/field.h"
#include "worker/data/limits.h"
#include "worker/data/line_source.h"

namespace tessera {
namespace {

bool IsHeader(absl::string_view line) {
  for (const absl::string_view field : absl::StrSplit(line, ',')) {
    if (ParseFloatField(absl::StripAsciiWhitespace(field)).has_value()) return false;
  }
  return true;
}

// The field before the next comma; `rest` loses both.
absl::string_view NextField(absl::string_view& rest) {
  const size_t comma = std::min(rest.find(','), rest.size());
  const absl::string_view field = absl::StripAsciiWhitespace(rest.substr(0, comma));
  rest.remove_prefix(std::min(comma + 1, rest.size()));
  return field;
}

// What is wrong with a line, or nothing.
std::optional<std::string> AppendRow(absl::string_view line, const TableSpec& spec,
                                     F32Values& values, Classes& classes) {
  const int64_t fields = std::count(line.begin(), line.end(), ',') + 1;
  if (fields != spec.features + 1) {
    return absl::StrCat("line has ", fields, " fields, want ", spec.features + 1,
                        " (the product of model.input is ", spec.features, ", then the label)");
  }
  for (int64_t i = 0; i < spec.features; ++i) {
    const absl::string_view field = NextField(line);
    const std::optional<float> value = ParseFloatField(field);
    if (!value.has_value()) {
      return absl::StrCat("field ", i + 1, " is ", QuotedField(field), ", want a finite number");
    }
    values.push_back(*value);
  }
  const absl::string_view field = NextField(line);
  const std::optional<int64_t> label = ParseLabelField(field);
  if (!label.has_value() || *label < 0 || *label >= spec.classes) {
    return absl::StrCat("label is ", QuotedField(field), ", want an integer from 0 to ",
                        spec.classes - 1, " (the model's classes)");
  }
  classes.push_back(static_cast<int32_t>(*label));
  return std::nullopt;
}

absl::Status AppendFile(const std::string& path, const TableSpec& spec, F32Values& values,
                        Classes& classes) {
  TESSERA_ASSIGN_OR_RETURN(auto bytes, ByteSource::Open(path));
  LineSource lines(std::move(bytes), kLineBytesBase + (spec.features + 1) * kFieldBytesMax);
  const int64_t row_bytes = (spec.features + 1) * int64_t{sizeof(float)};
  const int64_t rows_max = std::min(kRowsMax, spec.bytes_max / row_bytes);
  absl::string_view line;
  for (bool first = true;; first = false) {
    TESSERA_ASSIGN_OR_RETURN(const bool there_is, lines.Next(&line));
    if (!there_is) return absl::OkStatus();
    if (first && IsHeader(line)) continue;
    if (static_cast<int64_t>(classes.size()) >= rows_max) {
      return absl::ResourceExhaustedError(
          absl::StrCat(lines.where(), ": ", rows_max, " rows before need ", rows_max * row_bytes,
                       " bytes of memory, want at most ", spec.bytes_max));
    }
    if (const auto wrong = AppendRow(line, spec, values, classes)) {
      return absl::InvalidArgumentError(absl::StrCat(lines.where(), ": ", *wrong));
    }
  }
}

}  // namespace

absl::StatusOr<Table> ReadCsv(const std::vector<std::string>& paths, const TableSpec& spec) {
  F32Values values;
  Classes classes;
  for (const std::string& path : paths) {
    TESSERA_RETURN_IF_ERROR(AppendFile(path, spec, values, classes));
  }
  values.shrink_to_fit();
  classes.shrink_to_fit();
  Table table;
  table.rows = static_cast<int64_t>(classes.size());
  table.features = spec.features;
  table.values = std::move(values);
  table.labels = std::move(classes);
  return table;
}

}  // namespace tessera
