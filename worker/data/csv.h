// Comma-separated values: the features and the label, on every line.
//
//   file   = [header] row*
//   row    = number ("," number)* "," label         white space around a field is ignored
//   label  = integer in [0, classes); the last field, or the one that csv_columns.h finds
//   header = name ("," name)*, as csv_columns.h tells it from a row
// There is no quoting but around names. Blank lines are skipped.
#ifndef TESSERA_WORKER_DATA_CSV_H_
#define TESSERA_WORKER_DATA_CSV_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/csv_columns.h"
#include "worker/data/table.h"

namespace tessera {

// Reads the files one after the other; each may have a header. `columns` is one for training and test files.
//   kInvalidArgument    a line is malformed, or not what `spec` wants; the message names it
//   kResourceExhausted  the table would exceed spec.bytes_max
absl::StatusOr<Table> ReadCsv(const std::vector<std::string>& paths, const TableSpec& spec,
                              CsvColumns* columns);
// Reads a data set by itself, with the label last.
absl::StatusOr<Table> ReadCsv(const std::vector<std::string>& paths, const TableSpec& spec);

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_CSV_H_
