// Files that a user names and that are written at the end.
#ifndef TESSERA_COMMON_BASE_OUTPUT_FILE_H_
#define TESSERA_COMMON_BASE_OUTPUT_FILE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tessera {

// Whether `path`, which `flag` names, can be written: asked before hours of work. What is there stays as it
// is, and where nothing is nothing will be, as an empty file would look like a result. OK for "".
//   kInvalidArgument  it cannot
absl::Status CheckWritable(absl::string_view flag, const std::string& path);

// Whether what `flag` names is none of `inputs`, by whatever path: it would be overwritten at the end, a training file
// for good. OK for "", and for what is not there.
//   kInvalidArgument  it is one of them
absl::Status CheckIsNoInput(absl::string_view flag, const std::string& path,
                            const std::vector<std::string>& inputs);

// Writes `text` and a line break there, over what was there before; to a device or a pipe as it is.
//   kUnavailable  it cannot be written; "<flag>: ..." says why
absl::Status WriteOutput(absl::string_view flag, const std::string& path, absl::string_view text);

// Where writing to a path ends.
struct OutputPlace {
  // Behind all symbolic links, also one that leads to nothing yet.
  std::string path;
  // A file, or nothing yet: one that was written elsewhere may take its place. Else a device or a pipe, which can
  // only be written to.
  bool may_be_replaced = true;
};
OutputPlace PlaceOf(const std::string& path);

}  // namespace tessera

#endif  // TESSERA_COMMON_BASE_OUTPUT_FILE_H_
