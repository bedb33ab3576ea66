// IDX, the format of the MNIST files.
//
//   file  = 00 00 type rank size{rank} value{product of the sizes}
//   type  = 08 (u8) | 09 (i8) | 0B (i16) | 0C (i32) | 0D (f32) | 0E (f64)     one byte, as rank is
//   size  = u32
// All numbers are big-endian. The first size counts rows; the product of the others is the row
// size. Labels are a file of rank 1 and of an integer type.
#ifndef TESSERA_WORKER_DATA_IDX_H_
#define TESSERA_WORKER_DATA_IDX_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/table.h"

namespace tessera {

// As array.h says of all such files.
absl::StatusOr<Table> ReadIdx(const std::vector<std::string>& features_paths,
                              const std::vector<std::string>& labels_paths, const TableSpec& spec);

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_IDX_H_
