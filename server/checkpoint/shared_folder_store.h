// A job's checkpoints in one folder that all its processes see.
#ifndef TESSERA_SERVER_CHECKPOINT_SHARED_FOLDER_STORE_H_
#define TESSERA_SERVER_CHECKPOINT_SHARED_FOLDER_STORE_H_

#include <memory>
#include <string>
#include <vector>

#include "common/checkpoint/folder_lock.h"
#include "server/checkpoint/checkpoint_directory.h"
#include "server/checkpoint/checkpoint_store.h"

namespace tessera {

class SharedFolderStore final : public CheckpointStore {
 public:
  explicit SharedFolderStore(const v1::Checkpoint& keys);

  absl::Status Prepare() override { return absl::OkStatus(); }
  void SetServers(std::vector<std::string>) override {}
  OpenPart Parts() override { return PartsIn(directory_path_); }
  absl::StatusOr<std::unique_ptr<Checkpoint>> Open(const v1::RestoreOrder& order) override;
  void Complete(const Checkpoint&) override {}
  bool each_finds() const override { return true; }
  absl::StatusOr<std::unique_ptr<Checkpoint>> FindRestored() override;
  absl::Status Take(const Manifest* restored, bool goes_on, bool is_elected) override;
  void Release() override { directory_.reset(); }
  absl::Status Perform(const DiskTask& task) override;

 private:
  const std::string directory_path_;
  const std::string restore_path_;
  const int64_t keep_;
  std::unique_ptr<FolderLock> lock_;  // nullptr: nobody is asked
  std::unique_ptr<CheckpointDirectory> directory_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CHECKPOINT_SHARED_FOLDER_STORE_H_
