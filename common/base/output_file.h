// Files that a user names and that are written at the end.
#ifndef TESSERA_COMMON_BASE_OUTPUT_FILE_H_
#define TESSERA_COMMON_BASE_OUTPUT_FILE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tessera {

// Checks that `path`, which `flag` names, can be written: asked before hours of work. What is there stays as it
// is, and where nothing is nothing will be, as an empty file would look like a result. OK for "".
//   kInvalidArgument  it cannot
absl::Status CheckWritable(absl::string_view flag, const std::string& path);

// Checks that what `flag` names is none of `inputs`, by whatever path: it would be overwritten at the end, a
// training file for good. OK for "", and for what is not there.
//   kInvalidArgument  it is one of them
absl::Status CheckIsNoInput(absl::string_view flag, const std::string& path,
                            const std::vector<std::string>& inputs);

// Writes `text` and a line break there. A file changes all at once, or stays as it was where there is no room; to a
// device or a pipe it is written as it is.
//   kUnavailable  it cannot be written; "<flag>: ..." says why
absl::Status WriteOutput(absl::string_view flag, const std::string& path, absl::string_view text);

// The place where writing to a path ends.
struct OutputPlace {
  // The path behind all symbolic links, also behind one that leads to nothing yet.
  std::string path;
  // Whether a file that was written elsewhere may take its place: there is a file, or nothing yet. Otherwise it is
  // a device, a pipe or the file that this process's stdout or stderr goes to, which can only be written to.
  bool may_be_replaced = true;
};
OutputPlace PlaceOf(const std::string& path);

// A file that is written beside its place, under a name that is nobody else's, and takes its place when it is whole:
//   OutputFile out(path);
//   ... write to out.path(), if out.error() is 0 ...
//   out.Commit()
class OutputFile {
 public:
  // Makes the file, with the rights of the file that is there, or those that a new one gets.
  explicit OutputFile(const std::string& path);
  // Removes the file, if it has not taken its place.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // Why nothing can be written, as an errno; 0: it can.
  int error() const { return error_; }
  // The path to write to: the place itself where nothing can take it, or where nothing can be made beside it.
  const std::string& path() const { return part_.empty() ? place_ : part_; }
  bool is_beside() const { return !part_.empty(); }
  // Puts the file in its place. Returns 0, or errno. Called once.
  int Commit();

 private:
  std::string place_;
  std::string part_;  // empty: none
  int error_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_COMMON_BASE_OUTPUT_FILE_H_
