#include "worker/data/libsvm.h"

#include <algorithm>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "worker/data/byte_source.h"
#include "worker/data/field.h"
#include "worker/data/file_format.h"
#include "worker/data/file_head.h"
#include "worker/data/limits.h"
#include "worker/data/line_source.h"
#include "worker/data/number_array.h"
#include "worker/data/sparse_text.h"

namespace tessera {
namespace {

// Rows whose labels are not classes yet.
struct RawRows {
  SparseValues values;
  // Row i has the labels [label_begin[i], label_begin[i + 1]), ascending.
  NumberArray<int64_t> label_begin = {0};
  NumberArray<int64_t> labels;
  std::set<int64_t> distinct_labels;
  // One for each row, where these are the labels, and no row has any above.
  F32Values numbers;

  int64_t rows() const { return static_cast<int64_t>(label_begin.size()) - 1; }
  int64_t bytes() const {
    // Offsets, labels, and entries of a feature and a value have 8 bytes each, a number 4.
    return static_cast<int64_t>(
        8 * (values.value.size() + values.begin.size() + label_begin.size() + labels.size()) +
        4 * numbers.size());
  }
};

Complaint AppendNumber(absl::string_view field, F32Values& numbers) {
  const std::optional<float> number = ParseFloatField(field);
  if (!number) return absl::StrCat("label is ", QuotedField(field), ", want a finite number");
  numbers.push_back(*number);
  return std::nullopt;
}

Complaint AppendLabels(absl::string_view field, const TableSpec& spec,
                       NumberArray<int64_t>& labels) {
  // The field is all that is in front of the row's first blank; multi-label files separate labels by commas.
  const size_t first = labels.size();
  if (!field.empty()) {
    for (const absl::string_view part : absl::StrSplit(field, ',')) {
      const std::optional<int64_t> label = ParseIntegerField(part);
      if (!label.has_value()) {
        return absl::StrCat("label is ", QuotedField(part), ", want an integer");
      }
      labels.push_back(*label);
    }
  }
  const size_t count = labels.size() - first;
  if (!spec.class_sets && count != 1) {
    return absl::StrCat("row has ", count, " labels, want one; sets of labels need model.loss ",
                        "sigmoid_cross_entropy and more than one output");
  }
  // Ascending, so that a label that is there twice has itself for a neighbour.
  std::sort(labels.begin() + first, labels.end());
  const auto twice = std::adjacent_find(labels.begin() + first, labels.end());
  if (twice != labels.end()) return absl::StrCat("label ", *twice, " is there twice, want it once");
  return std::nullopt;
}

// A whole line may say from where indices count, as scikit-learn's dump_svmlight_file does.
Complaint NoteComment(absl::string_view line, bool has_rows, int64_t* index_base) {
  const std::string comment = absl::AsciiStrToLower(line);
  int64_t base = *index_base;
  for (const absl::string_view word : {"zero-based", "zero based", "0-based"}) {
    if (absl::StrContains(comment, word)) base = 0;
  }
  for (const absl::string_view word : {"one-based", "one based", "1-based"}) {
    if (absl::StrContains(comment, word)) base = 1;
  }
  if (base != *index_base && has_rows) {
    return absl::StrCat("comment says that indices count from ", base,
                        ", want it before the first row: those above were read as counting from ",
                        *index_base);
  }
  *index_base = base;
  return std::nullopt;
}

Complaint AppendRow(absl::string_view line, int64_t index_base, const TableSpec& spec,
                    RawRows& rows) {
  absl::string_view rest = line;
  absl::string_view labels = NextTextField(rest);
  // A row without labels begins with its entries.
  if (labels.find(':') != absl::string_view::npos) {
    labels = "";
    rest = line;
  }
  if (auto wrong = spec.numbers ? AppendNumber(labels, rows.numbers)
                                : AppendLabels(labels, spec, rows.labels)) {
    return wrong;
  }
  if (auto wrong = AppendSparseRow(rest, index_base, spec.features, rows.values)) return wrong;
  rows.label_begin.push_back(static_cast<int64_t>(rows.labels.size()));
  return std::nullopt;
}

// Checks the last row's labels as far as that is possible before all are known.
absl::Status NoteLabels(const LineSource& lines, const std::optional<LabelMap>& map,
                        const TableSpec& spec, RawRows& rows) {
  for (int64_t i = rows.label_begin[rows.rows() - 1]; i < rows.label_begin[rows.rows()]; ++i) {
    const int64_t label = rows.labels[i];
    if (rows.distinct_labels.count(label) != 0) continue;
    if (map.has_value() && !map->ClassOf(label).has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(lines.where(), ": label is ", label, ", want ",
                                                     map->Wanted(), " (as in the training set)"));
    }
    // More different labels than classes can never be mapped.
    if (static_cast<int64_t>(rows.distinct_labels.size()) == spec.classes) {
      return absl::InvalidArgumentError(absl::StrCat(
          lines.where(), ": label is ", label, " after ", spec.classes,
          " other ones, want at most ", spec.classes, " in all (the model's classes)"));
    }
    rows.distinct_labels.insert(label);
  }
  return absl::OkStatus();
}

absl::Status AppendFile(const std::string& path, const TableSpec& spec,
                        const std::optional<LabelMap>& map, RawRows& rows) {
  TESSERA_ASSIGN_OR_RETURN(auto bytes, ByteSource::Open(path));
  LineSource lines(std::move(bytes),
                   kLineBytesBase + (spec.features + spec.classes) * kFieldBytesMax);
  const int64_t rows_before = rows.rows();
  // The format's own convention: feature 1 is the first.
  int64_t index_base = 1;
  for (;;) {
    absl::string_view line;
    TESSERA_ASSIGN_OR_RETURN(const bool there_is, lines.Next(&line));
    if (!there_is) return absl::OkStatus();
    const absl::string_view row = line.substr(0, line.find('#'));
    const bool is_comment = absl::StripAsciiWhitespace(row).empty();
    const Complaint wrong = is_comment ? NoteComment(line, rows.rows() > rows_before, &index_base)
                                       : AppendRow(row, index_base, spec, rows);
    if (wrong) return absl::InvalidArgumentError(absl::StrCat(lines.where(), ": ", *wrong));
    if (is_comment) continue;
    TESSERA_RETURN_IF_ERROR(NoteLabels(lines, map, spec, rows));
    // Checked after each row, as text says nothing about its rows before it is read.
    if (rows.rows() > kRowsMax || rows.bytes() > spec.bytes_max) {
      return absl::ResourceExhaustedError(absl::StrCat(
          lines.where(), ": rows up to here need more than ", spec.bytes_max, " bytes of memory"));
    }
  }
}

std::variant<Classes, ClassSets> MapLabels(RawRows& rows, const LabelMap& map,
                                           const TableSpec& spec) {
  Classes classes;
  classes.reserve(rows.labels.size());
  for (const int64_t label : rows.labels) {
    const std::optional<int32_t> mapped = map.ClassOf(label);
    TESSERA_CHECK(mapped.has_value());
    classes.push_back(*mapped);
  }
  // Workers that see other rows must agree.
  bool sets = spec.class_sets && spec.local_files;
  // One row with other than one label makes sets of all.
  for (int64_t i = 0; i < rows.rows(); ++i) {
    sets |= rows.label_begin[i + 1] - rows.label_begin[i] != 1;
  }
  if (!sets) return classes;
  rows.label_begin.shrink_to_fit();
  return ClassSets{std::move(rows.label_begin), std::move(classes)};
}

}  // namespace

absl::StatusOr<Table> ReadLibsvm(const std::vector<std::string>& paths, const TableSpec& spec,
                                 std::optional<LabelMap>& labels) {
  RawRows rows;
  for (const std::string& path : paths) {
    TESSERA_RETURN_IF_ERROR(AppendFile(path, spec, labels, rows));
  }
  // Test rows are mapped as training rows were.
  if (!spec.numbers && !labels.has_value()) {
    absl::StatusOr<LabelMap> map =
        LabelMap::Create({rows.distinct_labels.begin(), rows.distinct_labels.end()}, spec);
    if (!map.ok()) {
      return absl::Status(map.status().code(),
                          absl::StrCat(paths[0], ": ", map.status().message()));
    }
    labels = *std::move(map);
  }
  Table table;
  table.rows = rows.rows();
  table.features = spec.features;
  if (spec.numbers) {
    rows.numbers.shrink_to_fit();
    table.labels = std::move(rows.numbers);
  } else {
    std::visit([&table](auto mapped) { table.labels = std::move(mapped); },
               MapLabels(rows, *labels, spec));
  }
  rows.values.begin.shrink_to_fit();
  rows.values.feature.shrink_to_fit();
  rows.values.value.shrink_to_fit();
  table.values = std::move(rows.values);
  return table;
}

namespace {

// A row whose second field, and whose last one, are entries.
absl::StatusOr<bool> IsLibsvm(const FileHead& head) {
  if (!head.is_text()) return false;
  const std::vector<absl::string_view> lines = head.lines();
  if (lines.empty() || !EndsWithEntry(lines[0])) return false;
  absl::string_view rest = lines[0];
  NextTextField(rest);
  return EndsWithEntry(NextTextField(rest));
}

// The largest index, and whether a row has several labels.
absl::Status LookAtLibsvm(const std::vector<std::string>& train,
                          const std::vector<std::string>& test, RowsLook* look) {
  int64_t largest = 0, entries = 0, rows = 0, label_max = 0;
  bool from_zero = false;
  const auto see = [&](absl::string_view line) {
    if (absl::StartsWith(line, "#")) {
      from_zero = from_zero || absl::StrContains(line, "zero-based");
      return;
    }
    const std::vector<absl::string_view> words =
        absl::StrSplit(line.substr(0, line.find('#')), absl::ByAnyChar(" \t"), absl::SkipEmpty());
    ++rows;
    for (const absl::string_view word : words) {
      const size_t colon = word.find(':');
      int64_t index;
      if (colon == absl::string_view::npos) {
        const std::vector<absl::string_view> labels = absl::StrSplit(word, ',');
        look->has_sets = look->has_sets || labels.size() > 1;
        for (const absl::string_view label : labels) {
          if (absl::SimpleAtoi(label, &index)) label_max = std::max(label_max, index);
        }
      } else if (absl::SimpleAtoi(word.substr(0, colon), &index)) {
        largest = std::max(largest, index);
        ++entries;
      }
    }
  };
  TESSERA_RETURN_IF_ERROR(ForEachLine(train, see));
  // Where there is no test file the training rows stand for it.
  if (test != train) TESSERA_RETURN_IF_ERROR(ForEachLine(test, see));
  look->input = {std::max<int64_t>(1, largest + (from_zero ? 1 : 0))};
  look->is_sparse =
      look->input[0] >= kSparseFeaturesMin && entries * kSparseShareInverse < rows * look->input[0];
  if (look->has_sets) look->classes = label_max + 1;
  return absl::OkStatus();
}

absl::StatusOr<Table> ReadLibsvmFiles(const TableFiles& files, const TableSpec& spec,
                                      TrainingConventions* conventions) {
  return ReadLibsvm(files.features, spec, conventions->labels);
}

}  // namespace

extern const FileFormat kLibsvmFormat = {"libsvm", IsLibsvm, LookAtLibsvm, ReadLibsvmFiles};

}  // namespace tessera
