// Says that a folder is in use by this process, to others that ask in the same way (flock).
#ifndef TESSERA_COMMON_CHECKPOINT_FOLDER_LOCK_H_
#define TESSERA_COMMON_CHECKPOINT_FOLDER_LOCK_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tessera {

// What to do where the coordinator's state is to be kept on a file system without locks.
constexpr char kNoLocksAdvice[] =
    "a server 0 that is lost is not started again: name a folder on a file system with locks in "
    "cluster.coordinator.directory, or start server 0 with --no-takeover, which keeps no state";

// Held until it is destroyed or the process ends, however that ends.
class FolderLock {
 public:
  // Takes the lock of `folder`, which is there, without waiting. The file `name` is made in it, and stays.
  // The failpoint is "folder.lock" (common/base/failpoint.h).
  //   kFailedPrecondition  another process has it
  //   kUnimplemented       this file system has no locks
  //   and durable_file.h's codes
  static absl::StatusOr<std::unique_ptr<FolderLock>> Take(const std::string& folder,
                                                          const std::string& name);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  explicit FolderLock(int fd) : fd_(fd) {}

  const int fd_;
};

}  // namespace tessera

#endif  // TESSERA_COMMON_CHECKPOINT_FOLDER_LOCK_H_
