// The binary records of CIFAR-10, from one file or several that are read one after the other.
//
//   file    = record*
//   record  = label (u8)  value (u8){3072}       1024 red, 1024 green, 1024 blue; no header
#ifndef TESSERA_WORKER_DATA_CIFAR_H_
#define TESSERA_WORKER_DATA_CIFAR_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/table.h"

namespace tessera {

// Row numbers in messages count from 0 in each file.
//   kInvalidArgument    a file is malformed, or not what `spec` wants
//   kResourceExhausted  the table would exceed spec.bytes_max
absl::StatusOr<Table> ReadCifar(const std::vector<std::string>& paths, const TableSpec& spec);

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_CIFAR_H_
