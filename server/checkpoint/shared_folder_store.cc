#include "server/checkpoint/shared_folder_store.h"

#include "common/base/check.h"
#include "server/checkpoint/restore.h"
#include "server/checkpoint/used_folder.h"

namespace tessera {

SharedFolderStore::SharedFolderStore(const v1::Checkpoint& keys)
    : directory_path_(keys.directory()), restore_path_(keys.restore()), keep_(keys.keep()) {}

absl::StatusOr<std::unique_ptr<Checkpoint>> SharedFolderStore::Open(const v1::RestoreOrder& order) {
  // The manifest is read again here: the folder may be another one than the coordinator sees.
  return Checkpoint::Open(
      CheckpointPath(order.from_restore() ? restore_path_ : directory_path_, order.step()));
}

absl::StatusOr<std::unique_ptr<Checkpoint>> SharedFolderStore::FindRestored() {
  return OpenForRestore(restore_path_);
}

absl::Status SharedFolderStore::Take(const Manifest* restored, bool goes_on, bool is_elected) {
  // Elected coordinators share the folder: the election, not the lock, keeps them apart.
  if (!is_elected) {
    TESSERA_ASSIGN_OR_RETURN(lock_, UseFolder(directory_path_));
  }
  if (!goes_on) TESSERA_RETURN_IF_ERROR(CheckFolder(directory_path_, restored));
  absl::StatusOr<std::unique_ptr<CheckpointDirectory>> opened =
      CheckpointDirectory::Open(directory_path_, keep_, goes_on);
  if (!opened.ok()) return OfDirectory(opened.status());
  directory_ = *std::move(opened);
  return absl::OkStatus();
}

absl::Status SharedFolderStore::Perform(const DiskTask& task) {
  switch (task.kind) {
    case DiskTask::Kind::kBegin:
      return directory_->Begin(task.folder_step).status();
    case DiskTask::Kind::kCommit:
      return directory_->Commit(task.manifest, task.folder_step);
    case DiskTask::Kind::kAbandon:
      directory_->Abandon(task.folder_step, task.manifest);
      return absl::OkStatus();
    case DiskTask::Kind::kPrune:
      directory_->Prune(task.manifest.step);
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

}  // namespace tessera
