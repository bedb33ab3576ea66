#include "worker/data/csv.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "worker/data/byte_source.h"
#include "worker/data/field.h"
#include "worker/data/file_format.h"
#include "worker/data/file_head.h"
#include "worker/data/label_range.h"
#include "worker/data/limits.h"
#include "worker/data/line_source.h"

namespace tessera {
namespace {

// A first row with this many fields that count 0, 1, 2 and so on is taken for names.
constexpr int64_t kCountedNamesMin = 5;

// The field before the next comma; `rest` loses both.
absl::string_view NextField(absl::string_view& rest) {
  const size_t comma = std::min(rest.find(','), rest.size());
  const absl::string_view field = absl::StripAsciiWhitespace(rest.substr(0, comma));
  rest.remove_prefix(std::min(comma + 1, rest.size()));
  return field;
}

// Files are read one after the other into one table.
class CsvReader {
 public:
  CsvReader(const TableSpec& spec, CsvColumns* columns) : spec_(spec), columns_(*columns) {}

  absl::Status AppendFile(const std::string& path);
  Table Finish();

 private:
  int64_t fields() const { return spec_.features + 1; }
  int64_t rows() const { return static_cast<int64_t>(classes_.size() + numbers_.size()); }
  absl::Status CheckRoom(const LineSource& lines) const;
  Complaint BeginFile(const std::string& path, absl::string_view line, bool* is_header);
  Complaint AppendRow(absl::string_view line);
  Complaint AppendLabel(absl::string_view field);
  // After a label that is no class: what those behind it say of it.
  std::string LabelAdvice(LineSource& lines);

  const TableSpec& spec_;
  CsvColumns& columns_;
  F32Values values_;
  Classes classes_;
  // Only one of the two is filled, so that their sum is the number of rows.
  F32Values numbers_;  // where these are the labels, instead of classes
  LabelRange range_;
  bool labels_may_explain_ = false;
};

// The first line is no header where it has a number; where it has other things than names, and then is no row
// either, the header may be what is wrong.
std::string HeaderAdvice(absl::string_view line) {
  bool has_name = false;
  for (const absl::string_view field : absl::StrSplit(line, ',')) {
    if (ParseFloatField(absl::StripAsciiWhitespace(field)).has_value()) return "";
    has_name |= IsCsvHeader(field);
  }
  return has_name ? "; a header has a name in every field" : "";
}

std::string SeparatorAdvice(absl::string_view line) {
  if (line.find(',') != absl::string_view::npos) return "";
  for (const auto& [separator, name] : {std::pair(';', "semicolons"), std::pair('\t', "tabs")}) {
    if (line.find(separator) == absl::string_view::npos) continue;
    return absl::StrCat("; between its fields are ", name, ", want commas");
  }
  return "";
}

bool CountsFromZero(absl::string_view line) {
  // A table of few columns may begin with a row 0, 1, 2.
  int64_t next = 0;
  for (const absl::string_view field : absl::StrSplit(line, ',')) {
    if (absl::StripAsciiWhitespace(field) != absl::StrCat(next)) return false;
    ++next;
  }
  return next >= kCountedNamesMin;
}

Complaint CsvReader::BeginFile(const std::string& path, absl::string_view line, bool* is_header) {
  *is_header = IsCsvHeader(line);
  if (CountsFromZero(line)) {
    return "line counts its fields from 0, as pandas does for columns without names, want a row or "
           "names; leave the line out with to_csv(header=False, index=False)";
  }
  return columns_.BeginFile(path, *is_header ? line : "", fields());
}

Complaint CsvReader::AppendRow(absl::string_view line) {
  const int64_t count = std::count(line.begin(), line.end(), ',') + 1;
  if (count != fields()) {
    return absl::StrCat("line has ", count, " fields, want ", fields(),
                        " (the product of model.input is ", spec_.features, ", then the label)",
                        SeparatorAdvice(line));
  }
  for (int64_t i = 0; i < fields(); ++i) {
    const absl::string_view field = NextField(line);
    if (i == columns_.label_field()) {
      if (auto wrong = AppendLabel(field)) return wrong;
      continue;
    }
    const std::optional<float> value = ParseFloatField(field);
    if (!value.has_value()) {
      return absl::StrCat("field ", i + 1, " is ", QuotedField(field), ", want a finite number");
    }
    values_.push_back(*value);
  }
  return std::nullopt;
}

Complaint CsvReader::AppendLabel(absl::string_view field) {
  if (spec_.numbers) {
    const std::optional<float> number = ParseFloatField(field);
    if (!number) return absl::StrCat("label is ", QuotedField(field), ", want a finite number");
    numbers_.push_back(*number);
    return std::nullopt;
  }
  const std::optional<int64_t> label = ParseLabelField(field);
  if (label.has_value()) range_.Add(*label);
  if (label.has_value() && *label >= 0 && *label < spec_.classes) {
    classes_.push_back(static_cast<int32_t>(*label));
    return std::nullopt;
  }
  // The labels of the rest are asked only where they could explain this one.
  labels_may_explain_ = label.has_value() && range_.MayExplain(*label, spec_.classes);
  return absl::StrCat("label is ", QuotedField(field), ", want an integer from 0 to ",
                      spec_.classes - 1, " (the model's classes)");
}

std::string CsvReader::LabelAdvice(LineSource& lines) {
  if (!labels_may_explain_) return "";
  for (;;) {
    absl::string_view line;
    const absl::StatusOr<bool> there_is = lines.Next(&line);
    if (!there_is.ok()) return "";
    if (!*there_is) return range_.Advice(spec_.classes);
    absl::string_view field;
    for (int64_t i = 0; i <= columns_.label_field(); ++i) field = NextField(line);
    // The advice needs all labels: one that is no number ends it.
    const std::optional<int64_t> label = ParseLabelField(field);
    if (!label.has_value()) return "";
    range_.Add(*label);
  }
}

absl::Status CsvReader::CheckRoom(const LineSource& lines) const {
  const int64_t row_bytes = fields() * int64_t{sizeof(float)};
  const int64_t rows_max = std::min(kRowsMax, spec_.bytes_max / row_bytes);
  if (rows() < rows_max) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(lines.where(), ": ", rows_max, " rows before need ", rows_max * row_bytes,
                   " bytes of memory, want at most ", spec_.bytes_max));
}

absl::Status CsvReader::AppendFile(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(auto bytes, ByteSource::Open(path));
  // A line is as long as its fields at most, so that a file without newlines is not read into memory whole.
  LineSource lines(std::move(bytes), kLineBytesBase + fields() * kFieldBytesMax);
  absl::string_view line;
  for (bool first = true;; first = false) {
    TESSERA_ASSIGN_OR_RETURN(const bool there_is, lines.Next(&line));
    if (!there_is) return absl::OkStatus();
    bool is_header = false;
    Complaint wrong;
    if (first) wrong = BeginFile(path, line, &is_header);
    if (!is_header && !wrong) {
      TESSERA_RETURN_IF_ERROR(CheckRoom(lines));
      wrong = AppendRow(line);
      if (wrong && first) wrong->append(HeaderAdvice(line));
    }
    if (!wrong) continue;
    const std::string where = lines.where();
    return absl::InvalidArgumentError(absl::StrCat(where, ": ", *wrong, LabelAdvice(lines)));
  }
}

Table CsvReader::Finish() {
  Table table;
  table.rows = rows();
  table.features = spec_.features;
  values_.shrink_to_fit();
  classes_.shrink_to_fit();
  table.values = std::move(values_);
  if (spec_.numbers) {
    numbers_.shrink_to_fit();
    table.labels = std::move(numbers_);
  } else {
    table.labels = std::move(classes_);
  }
  return table;
}

}  // namespace

absl::StatusOr<Table> ReadCsv(const std::vector<std::string>& paths, const TableSpec& spec,
                              CsvColumns* columns) {
  CsvReader reader(spec, columns);
  for (const std::string& path : paths) TESSERA_RETURN_IF_ERROR(reader.AppendFile(path));
  return reader.Finish();
}

absl::StatusOr<Table> ReadCsv(const std::vector<std::string>& paths, const TableSpec& spec) {
  CsvColumns columns;
  return ReadCsv(paths, spec, &columns);
}

namespace {

bool IsNumberField(absl::string_view field) {
  return ParseFloatField(absl::StripAsciiWhitespace(field)).has_value();
}

// A file that is called so, or lines of equally many fields with a number in the last one of them.
absl::StatusOr<bool> IsCsv(const FileHead& head) {
  if (!head.is_text()) return false;
  const std::vector<absl::string_view> lines = head.lines();
  if (lines.empty()) return false;
  if (absl::EndsWith(head.name(), ".csv")) return true;
  const auto commas = [](absl::string_view line) {
    return std::count(line.begin(), line.end(), ',');
  };
  const int64_t first = commas(lines[0]);
  const bool is_table = lines.size() > 1 && first > 0 &&
                        std::all_of(lines.begin(), lines.end(),
                                    [&](absl::string_view line) { return commas(line) == first; });
  const std::vector<absl::string_view> row = absl::StrSplit(lines.back(), ',');
  return is_table && std::any_of(row.begin(), row.end(), IsNumberField);
}

// The fields of a line, and the label's name where the header says that it is not the last.
absl::Status LookAtCsv(const std::vector<std::string>& train, const std::vector<std::string>&,
                       RowsLook* look) {
  TESSERA_ASSIGN_OR_RETURN(const std::string first, FirstLine(train[0]));
  const std::vector<std::string> fields = absl::StrSplit(first, ',');
  look->input = {std::max<int64_t>(1, static_cast<int64_t>(fields.size()) - 1)};
  if (!IsCsvHeader(first)) return absl::OkStatus();
  const auto names_label = [](absl::string_view field) {
    std::string name(absl::StripAsciiWhitespace(field));
    if (name.size() > 1 && name.front() == '"' && name.back() == '"') {
      name = name.substr(1, name.size() - 2);
    }
    name = absl::AsciiStrToLower(name);
    return name == "label" || name == "labels" || name == "class" || name == "target";
  };
  if (names_label(fields.back())) return absl::OkStatus();
  const auto label = std::find_if(fields.begin(), fields.end(), names_label);
  if (label != fields.end()) look->own_value = std::string(absl::StripAsciiWhitespace(*label));
  return absl::OkStatus();
}

absl::StatusOr<Table> ReadCsvFiles(const TableFiles& files, const TableSpec& spec,
                                   TrainingConventions* conventions) {
  return ReadCsv(files.features, spec, &conventions->columns);
}

}  // namespace

extern const FileFormat kCsvFormat = {"csv", IsCsv, LookAtCsv, ReadCsvFiles};

}  // namespace tessera
