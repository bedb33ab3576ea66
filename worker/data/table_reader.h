// From the files that a job names to a table, whatever their format is.
//
// common/config/data_formats.h has what the job file must say for each format.
#ifndef TESSERA_WORKER_DATA_TABLE_READER_H_
#define TESSERA_WORKER_DATA_TABLE_READER_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/job.pb.h"
#include "worker/data/characters.h"
#include "worker/data/csv_columns.h"
#include "worker/data/images.h"
#include "worker/data/label_map.h"
#include "worker/data/table.h"

namespace tessera {

// What the files of the training set determine for those of the test set, which are read after them.
struct TrainingConventions {
  explicit TrainingConventions(const v1::Data& data) : columns(data.label_column()) {}

  // Which class each label is, for formats that number labels. It may be set beforehand, from a checkpoint.
  std::optional<LabelMap> labels;
  // The tokens of a text, which may be set beforehand, too.
  std::optional<Characters> characters;
  // Where the label stands in a line of a csv file.
  CsvColumns columns;
  // The class folders of pictures.
  std::vector<std::string> class_names;
};

// The path of `file`, which is relative to data.directory unless it is absolute.
std::string DataFilePath(const v1::Data& data, const std::string& file);

// The paths of the features of `files`.
std::vector<std::string> FeaturePaths(const v1::Data& data, const v1::DataFiles& files);
// What of data.format images says how pictures become rows.
ImageOptions ImageOptionsOf(const v1::Data& data);

// Reads all of `files`, which are the job's `key` ("data.train" or "data.test"), as data.format says, which must name a
// format. The table has at least one row.
//   kNotFound, kPermissionDenied, ...  a file cannot be opened
//   kInvalidArgument                   a file is malformed, empty, or not what `spec` wants, or `files` lack a path
//                                      that the format needs
//   kDataLoss                          a gzip file is corrupt or cut off
//   kResourceExhausted                 the table would exceed spec.bytes_max, or the memory that there is
absl::StatusOr<Table> ReadTable(const v1::Data& data, const v1::DataFiles& files,
                                absl::string_view key, const TableSpec& spec,
                                TrainingConventions* conventions);

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_TABLE_READER_H_
