// The text format of the Extreme Classification Repository: sparse rows with sets of labels.
//
//   file    = header row{rows}
//   header  = rows features labels             separated by spaces
//   row     = [label ("," label)*] entry*      separated by spaces; no labels: a space comes first
//   entry   = index ":" value
// Labels are in [0, labels), each once in a row; indices are in [0, features) and ascend. A row may
// have no entries, and an empty line is a row without anything.
#ifndef TESSERA_WORKER_DATA_XC_H_
#define TESSERA_WORKER_DATA_XC_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/table.h"

namespace tessera {

// Reads the files one after the other; each has a header, which must say what `spec` wants. The
// table says always_sparse. Where spec.class_sets is not set every row must have one label.
//   kInvalidArgument    a line is malformed, or not what `spec` wants; the message names it
//   kResourceExhausted  the table would exceed spec.bytes_max
absl::StatusOr<Table> ReadXc(const std::vector<std::string>& paths, const TableSpec& spec);

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_XC_H_
