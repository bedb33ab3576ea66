// Files that a flag names and that are written at the end.
#ifndef TESSERA_COMMON_BASE_OUTPUT_FILE_H_
#define TESSERA_COMMON_BASE_OUTPUT_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tessera {

// Whether `path`, which `flag` names, can be written: asked before hours of work. What is there stays as it
// is, and where nothing is nothing will be, as an empty file would look like a result. OK for "".
//   kInvalidArgument  it cannot
absl::Status CheckWritable(absl::string_view flag, const std::string& path);

}  // namespace tessera

#endif  // TESSERA_COMMON_BASE_OUTPUT_FILE_H_
