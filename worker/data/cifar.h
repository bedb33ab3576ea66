// The binary records of CIFAR-10 and CIFAR-100, from one file or several that are read one after the other.
//
//   file    = record*                            no header
//   record  = label value{3072}                  of CIFAR-10; 1024 red, 1024 green, 1024 blue
//           | coarse fine value{3072}            of CIFAR-100: two labels, of which one is taken
// All of them are u8.
#ifndef TESSERA_WORKER_DATA_CIFAR_H_
#define TESSERA_WORKER_DATA_CIFAR_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/table.h"

namespace tessera {

enum class CifarLabels { kOne, kFine, kCoarse };

// Row numbers in messages count from 0 in each file.
//   kInvalidArgument    a file is malformed, or not what `spec` wants
//   kResourceExhausted  the table would exceed spec.bytes_max
absl::StatusOr<Table> ReadCifar(const std::vector<std::string>& paths, const TableSpec& spec,
                                CifarLabels labels = CifarLabels::kOne);

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_CIFAR_H_
