// From the files that a job names to a table, whatever their format is.
//
// common/config/data_formats.h has what the job file must say for each format, file_format.h how each is read.
#ifndef TESSERA_WORKER_DATA_TABLE_READER_H_
#define TESSERA_WORKER_DATA_TABLE_READER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/job.pb.h"
#include "worker/data/file_format.h"
#include "worker/data/table.h"

namespace tessera {

// The path of `file`, which is relative to data.directory unless it is absolute.
std::string DataFilePath(const v1::Data& data, const std::string& file);

// The paths of the features of `files`.
std::vector<std::string> FeaturePaths(const v1::Data& data, const v1::DataFiles& files);

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
