// Files and folders that are on the disk when a function says so, and what can go wrong on the way.
//
// Every step is a failpoint (common/base/failpoint.h): file.create, file.write, file.sync, file.rename,
// folder.make, folder.sync, folder.rename, folder.remove. A failure is told as
//   checkpoint: "<path>" cannot be written: No space left on device
// in UTF-8 whatever the path is (common/base/utf8.h),
// with a code that says what kind it is:
//   kResourceExhausted  the disk or the quota is full
//   kPermissionDenied   read-only, or not ours to write
//   kNotFound           it is not there
//   kUnavailable        anything else
#ifndef TESSERA_COMMON_CHECKPOINT_DURABLE_FILE_H_
#define TESSERA_COMMON_CHECKPOINT_DURABLE_FILE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera {

// A file that is written from its begin to its end. One thread.
class DurableFile {
 public:
  // Creates a file; one that is there already is emptied, and a link is followed. For a path that is the caller's own.
  static absl::StatusOr<std::unique_ptr<DurableFile>> Create(std::string path);
  // Creates a file where there is nothing, not even a link: kUnavailable otherwise.
  static absl::StatusOr<std::unique_ptr<DurableFile>> CreateNew(std::string path);
  // Creates a file that nobody else writes: a dot and 16 digits, drawn anew, are added to `path`.
  static absl::StatusOr<std::unique_ptr<DurableFile>> CreateUnique(const std::string& path);
  ~DurableFile();

  // Writes behind what was written before. After an error the file is of no use.
  absl::Status Write(const void* data, int64_t bytes);
  // Returns once all of it is on the disk, and the file is closed. Its name is on the disk once its folder is
  // synced.
  absl::Status Finish();

  const std::string& path() const { return path_; }

 private:
  DurableFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  static absl::StatusOr<std::unique_ptr<DurableFile>> Open(std::string path, int flags);

  const std::string path_;
  int fd_;
};

// The error that `error`, an errno, means for `path`; `what` is "written", "read", "made" and so on.
absl::Status FileError(int error, absl::string_view path, absl::string_view what);

// Makes the folder, but not the ones above it. OK if it is there already.
absl::Status MakeFolder(const std::string& path);
// Returns once the names in the folder are on the disk.
absl::Status SyncFolder(const std::string& path);
// Moves a folder; `to` is not there.
absl::Status RenameFolder(const std::string& from, const std::string& to);
// Gives a file another name, in place of the file that has it.
absl::Status ReplaceFile(const std::string& from, const std::string& to);
// Removes a file. OK if it is not there.
absl::Status RemoveFile(const std::string& path);
// Removes a folder and the files in it. OK if it is not there.
absl::Status RemoveFolder(const std::string& path);

// Reads the whole file. kInvalidArgument where it is longer than `bytes_max`, or no plain file: a pipe is not
// waited for.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path, int64_t bytes_max);

}  // namespace tessera

#endif  // TESSERA_COMMON_CHECKPOINT_DURABLE_FILE_H_
