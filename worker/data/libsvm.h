// LIBSVM text: sparse rows with one label, or with a set of labels.
//
//   file    = row*
//   row     = [labels] entry* ["#" comment]     separated by spaces or tabs
//   labels  = label ("," label)*                integers; label_map.h says which class each is
//   entry   = index ":" value                   index in [1, features], ascending
// A row without labels, or with several, is only for models that predict sets (sigmoid loss). Blank
// lines and lines of comment are skipped.
#ifndef TESSERA_WORKER_DATA_LIBSVM_H_
#define TESSERA_WORKER_DATA_LIBSVM_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/label_map.h"
#include "worker/data/table.h"

namespace tessera {

// Reads the files one after the other. Values stay sparse; index j is feature j - 1. Labels are
// mapped by `labels`; where it is absent it is made from these files, the training set, and set.
//   kInvalidArgument    a line is malformed, or not what `spec` wants; the message names it
//   kResourceExhausted  the table would exceed spec.bytes_max
absl::StatusOr<Table> ReadLibsvm(const std::vector<std::string>& paths, const TableSpec& spec,
                                 std::optional<LabelMap>& labels);

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_LIBSVM_H_
