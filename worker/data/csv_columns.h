// Which field of a csv line is the label, by data.label_column and by what headers say.
#ifndef TESSERA_WORKER_DATA_CSV_COLUMNS_H_
#define TESSERA_WORKER_DATA_CSV_COLUMNS_H_

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/strings/string_view.h"
#include "worker/data/sparse_text.h"

namespace tessera {

// A header is a first line with a name in every field. A field without one is a number, nothing, or what stands for
// a missing value ("?", "NA", "nan"): a first row of those is a row, and no header.
bool IsCsvHeader(absl::string_view line);

// The columns of all files of one data set, in the order in which they are read: headers agree about the columns'
// order.
class CsvColumns {
 public:
  // `label_column` is data.label_column; empty: the last field, where no header says otherwise.
  explicit CsvColumns(std::string label_column = "") : label_column_(std::move(label_column)) {}

  // A file begins whose lines have `fields` fields; `header` is its first line, or empty where that is a row.
  // Says what is wrong with it.
  Complaint BeginFile(const std::string& path, absl::string_view header, int64_t fields);

  // The label's field in the file that was begun last, from 0.
  int64_t label_field() const { return label_field_; }

 private:
  Complaint FindLabel(const std::vector<std::string>& names, int64_t fields);
  Complaint CheckLastIsLabel(const std::vector<std::string>& names) const;
  Complaint CheckOrder(const std::string& path, const std::vector<std::string>& names);

  std::string label_column_;
  int64_t label_field_ = 0;
  // Names of the first header, and where they stand.
  std::unordered_map<std::string, int64_t> place_;
  std::string first_path_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_CSV_COLUMNS_H_
