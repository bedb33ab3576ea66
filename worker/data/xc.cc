#include "worker/data/xc.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
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
#include "worker/data/sparse_text.h"

namespace tessera {
namespace {

struct Rows {
  SparseValues values;
  ClassSets labels;
  LabelRange range;
  // What ended the reading is a label that the range may explain.
  bool range_may_explain = false;
  // Whether the file that is read has labels of one class: a row of the second class has label 0, one of the first
  // none.
  bool one_label = false;

  int64_t count() const { return static_cast<int64_t>(values.begin.size()) - 1; }
  // At least Table::bytes() of them.
  int64_t bytes() const {
    // An entry of a feature and a value has 8 bytes, as an offset does, a class 4.
    return static_cast<int64_t>(8 * (values.value.size() + values.begin.size()) +
                                8 * labels.begin.size() + 4 * labels.classes.size());
  }
};

// Sets `rows` and `one_label` to what the header says.
Complaint ReadHeader(absl::string_view line, const TableSpec& spec, int64_t& rows,
                     bool& one_label) {
  std::vector<int64_t> numbers;
  for (absl::string_view field = NextTextField(line); !field.empty(); field = NextTextField(line)) {
    const std::optional<int64_t> number = ParseIntegerField(field);
    if (!number.has_value() || *number < 0) {
      return absl::StrCat("header has ", QuotedField(field), ", want rows, features and labels");
    }
    numbers.push_back(*number);
  }
  if (numbers.size() != 3) {
    return absl::StrCat("header has ", numbers.size(),
                        " numbers, want three: rows, features and labels");
  }
  rows = numbers[0];
  // The header is of the file, and the job's model must agree with it.
  if (numbers[1] != spec.features) {
    return absl::StrCat("header says ", numbers[1], " features, want ", spec.features,
                        ", the product of model.input");
  }
  one_label = spec.one_output && numbers[2] == 1;
  if (numbers[2] != spec.classes && !one_label) {
    return absl::StrCat("header says ", numbers[2], " labels, want ", spec.classes,
                        " (the model's classes)");
  }
  if (rows > kRowsMax) {
    return absl::StrCat("header says ", rows, " rows, want at most ", kRowsMax);
  }
  return std::nullopt;
}

Complaint AppendLabels(absl::string_view field, const TableSpec& spec, Rows& rows) {
  ClassSets& out = rows.labels;
  const size_t first = out.classes.size();
  if (!field.empty()) {
    for (const absl::string_view part : absl::StrSplit(field, ',')) {
      const std::optional<int64_t> label = ParseIntegerField(part);
      if (label.has_value()) rows.range.Add(*label);
      if (!label.has_value() || *label < 0 || *label >= spec.classes) {
        rows.range_may_explain = label.has_value() && rows.range.MayExplain(*label, spec.classes);
        return absl::StrCat("label is ", QuotedField(part), ", want 0 to ", spec.classes - 1,
                            " (the model's classes)");
      }
      out.classes.push_back(static_cast<int32_t>(*label));
    }
  }
  const size_t count = out.classes.size() - first;
  if (!spec.class_sets && count != 1) {
    return absl::StrCat("row has ", count, " labels, want one; sets of labels need model.loss ",
                        "sigmoid_cross_entropy and more than one output");
  }
  std::sort(out.classes.begin() + first, out.classes.end());
  const auto twice = std::adjacent_find(out.classes.begin() + first, out.classes.end());
  if (twice != out.classes.end()) {
    return absl::StrCat("label ", *twice, " is there twice, want it once");
  }
  out.begin.push_back(static_cast<int64_t>(out.classes.size()));
  return std::nullopt;
}

Complaint AppendOneLabel(absl::string_view field, ClassSets& out) {
  if (!field.empty() && ParseIntegerField(field) != 0) {
    return absl::StrCat("label is ", QuotedField(field), ", want 0 or none (header says 1 label)");
  }
  // Without the label it is the first class.
  out.classes.push_back(field.empty() ? 0 : 1);
  out.begin.push_back(static_cast<int64_t>(out.classes.size()));
  return std::nullopt;
}

Complaint AppendRow(absl::string_view line, const TableSpec& spec, Rows& rows) {
  absl::string_view rest = line;
  absl::string_view labels = NextTextField(rest);
  // A row without labels begins with its entries.
  if (labels.find(':') != absl::string_view::npos) {
    labels = "";
    rest = line;
  }
  if (auto wrong =
          rows.one_label ? AppendOneLabel(labels, rows.labels) : AppendLabels(labels, spec, rows)) {
    return wrong;
  }
  // This format counts features from 0.
  return AppendSparseRow(rest, 0, spec.features, rows.values);
}

// After a label that is no class: what those behind it say of it.
std::string LabelAdvice(LineSource& lines, const TableSpec& spec, Rows& rows) {
  if (!rows.range_may_explain) return "";
  for (;;) {
    absl::string_view line;
    const absl::StatusOr<bool> there_is = lines.Next(&line);
    if (!there_is.ok()) return "";
    if (!*there_is) return rows.range.Advice(spec.classes);
    const absl::string_view labels = NextTextField(line);
    if (labels.find(':') != absl::string_view::npos) continue;
    for (const absl::string_view part : absl::StrSplit(labels, ',')) {
      const std::optional<int64_t> label = ParseIntegerField(part);
      if (!label.has_value()) return "";
      rows.range.Add(*label);
    }
  }
}

// Behind the last row there is nothing but white space.
absl::Status ExpectEnd(LineSource& lines, int64_t rows) {
  absl::string_view line;
  TESSERA_ASSIGN_OR_RETURN(const bool there_is, lines.Next(&line));
  if (!there_is) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(lines.where(), ": file goes on after ", rows,
                                                 " rows, want its end, as the header says"));
}

absl::Status AppendFile(const std::string& path, const TableSpec& spec, Rows& rows) {
  TESSERA_ASSIGN_OR_RETURN(auto bytes, ByteSource::Open(path));
  LineSource lines(std::move(bytes),
                   kLineBytesBase + (spec.features + spec.classes) * kFieldBytesMax);
  absl::string_view line;
  TESSERA_ASSIGN_OR_RETURN(const bool has_header, lines.Next(&line));
  if (!has_header) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": has no header, want a line of rows, features and labels"));
  }
  int64_t wanted = 0;
  if (auto wrong = ReadHeader(line, spec, wanted, rows.one_label)) {
    return absl::InvalidArgumentError(absl::StrCat(lines.where(), ": ", *wrong));
  }
  for (int64_t row = 0; row < wanted; ++row) {
    // A blank line is a row with neither labels nor entries.
    TESSERA_ASSIGN_OR_RETURN(const bool there_is, lines.NextOrBlank(&line));
    if (!there_is) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": file ends after ", row, " rows, want ", wanted, ", as its header says"));
    }
    if (auto wrong = AppendRow(line, spec, rows)) {
      const std::string where = lines.where();
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": ", *wrong, LabelAdvice(lines, spec, rows)));
    }
    if (rows.count() > kRowsMax || rows.bytes() > spec.bytes_max) {
      return absl::ResourceExhaustedError(absl::StrCat(
          lines.where(), ": rows up to here need more than ", spec.bytes_max, " bytes of memory"));
    }
  }
  return ExpectEnd(lines, wanted);
}

}  // namespace

absl::StatusOr<Table> ReadXc(const std::vector<std::string>& paths, const TableSpec& spec) {
  Rows rows;
  for (const std::string& path : paths) {
    TESSERA_RETURN_IF_ERROR(AppendFile(path, spec, rows));
  }
  Table table;
  table.rows = rows.count();
  table.features = spec.features;
  // The format is for data sets of many features and few entries in a row (extreme classification).
  table.always_sparse = true;
  rows.values.begin.shrink_to_fit();
  rows.values.feature.shrink_to_fit();
  rows.values.value.shrink_to_fit();
  table.values = std::move(rows.values);
  if (spec.class_sets) {
    rows.labels.begin.shrink_to_fit();
    rows.labels.classes.shrink_to_fit();
    table.labels = std::move(rows.labels);
  } else {
    rows.labels.classes.shrink_to_fit();
    table.labels = std::move(rows.labels.classes);
  }
  return table;
}

namespace {

// Three counts, and behind them a row that ends with an entry.
absl::StatusOr<bool> IsXc(const FileHead& head) {
  if (!head.is_text()) return false;
  const std::vector<absl::string_view> lines = head.lines();
  if (lines.size() < 2 || !EndsWithEntry(lines[1])) return false;
  const std::vector<absl::string_view> counts =
      absl::StrSplit(lines[0], absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
  return counts.size() == 3 &&
         std::all_of(counts.begin(), counts.end(), [](absl::string_view count) {
           return std::all_of(count.begin(), count.end(), absl::ascii_isdigit);
         });
}

absl::Status LookAtXc(const std::vector<std::string>& train, const std::vector<std::string>&,
                      RowsLook* look) {
  TESSERA_ASSIGN_OR_RETURN(const std::string first, FirstLine(train[0]));
  const std::vector<std::string> counts = absl::StrSplit(first, ' ', absl::SkipEmpty());
  int64_t features, labels;
  if (counts.size() != 3 || !absl::SimpleAtoi(counts[1], &features) ||
      !absl::SimpleAtoi(counts[2], &labels)) {
    return absl::InvalidArgumentError(
        absl::StrCat(train[0], ":1: got \"", first, "\", want `rows features labels`"));
  }
  look->input = {features};
  look->classes = labels;
  look->has_sets = true;
  look->is_sparse = true;
  return absl::OkStatus();
}

absl::StatusOr<Table> ReadXcFiles(const TableFiles& files, const TableSpec& spec,
                                  TrainingConventions*) {
  return ReadXc(files.features, spec);
}

}  // namespace

extern const FileFormat kXcFormat = {"xc", IsXc, LookAtXc, ReadXcFiles};

}  // namespace tessera
