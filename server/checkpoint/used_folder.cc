#include "server/checkpoint/used_folder.h"

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/checkpoint/durable_file.h"
#include "server/checkpoint/restore.h"

namespace tessera {
namespace {

// The lock lies beside the checkpoints. It is not called "lock", as cluster.coordinator.directory may be the same
// folder.
constexpr char kLockName[] = "checkpoints.lock";

}  // namespace

absl::StatusOr<std::unique_ptr<FolderLock>> UseFolder(const std::string& directory) {
  const absl::Status made = MakeFolder(directory);
  if (!made.ok()) return OfDirectory(made);
  absl::StatusOr<std::unique_ptr<FolderLock>> lock = FolderLock::Take(directory, kLockName);
  if (lock.ok()) return lock;
  if (absl::IsUnimplemented(lock.status())) {
    Log(LogLevel::kInfo,
        absl::StrCat("checkpoint: another job in the same folder would not be noticed why=\"",
                     lock.status().message(), "\""));
    return std::unique_ptr<FolderLock>();
  }
  if (!absl::IsFailedPrecondition(lock.status())) return OfDirectory(lock.status());
  return absl::FailedPreconditionError(absl::StrCat(
      "checkpoint.directory: ", lock.status().message(),
      ", which is the coordinator of a job; name another folder, or wait until that has ended"));
}

}  // namespace tessera
