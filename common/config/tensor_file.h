// The file that model.tensors names: what a job of tensors learns of it.
#ifndef TESSERA_COMMON_CONFIG_TENSOR_FILE_H_
#define TESSERA_COMMON_CONFIG_TENSOR_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/config/job_error.h"
#include "proto/job.pb.h"

namespace tessera {

// Names, shapes and the sum of a safetensors file. It reads all values once, to hash them; a file that this process has
// read, and that has not been written since, is not read again. Any thread.
//   kInvalidArgument  the file is none, has no tensors or more than kTensorsMax, or some of them have another type than
//                     F32, F16 and BF16, no entries, a name that is empty or too long, or values that are not finite:
//                     all such tensors are named, up to a few; and FileError's codes
absl::StatusOr<v1::TensorLayout> LayoutOfFile(const std::string& path);

// Fills model.tensor_layout of a job of tensors from the file that model.tensors names. What is wrong with it is an
// error of the key, and the layout is then empty, but there. `may_be_missing`: where there is no file the layout is
// empty, too, and that is no error.
void ReadTensorFile(const Positions& positions, bool may_be_missing, v1::Model* model,
                    JobErrors* errors);

}  // namespace tessera

#endif  // TESSERA_COMMON_CONFIG_TENSOR_FILE_H_
