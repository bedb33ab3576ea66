// A job's checkpoints on the servers' own disks: each step is taken on all of them (common/store/own_disks.h).
//
// A checkpoint is whole once all servers that are there have given its files their names. Each file is then on as many
// of their disks as checkpoint.copies says; and where a server was lost before it had, on another that had.
#ifndef TESSERA_SERVER_CHECKPOINT_OWN_DISKS_STORE_H_
#define TESSERA_SERVER_CHECKPOINT_OWN_DISKS_STORE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/checkpoint/folder_lock.h"
#include "common/store/own_disks.h"
#include "server/checkpoint/checkpoint_store.h"
#include "server/checkpoint/held_checkpoints.h"

namespace tessera {

class OwnDisksStore final : public CheckpointStore {
 public:
  // `model` is the manifest of the job's parameters and states (JobFacts::model_manifest).
  OwnDisksStore(const v1::Job& job, int rank, std::string job_digest, const Manifest& model);

  absl::Status Prepare() override;
  HeldCheckpoints* held() override { return held_.get(); }
  void SetServers(std::vector<std::string> addresses) override;
  OpenPart Parts() override;
  absl::StatusOr<std::unique_ptr<Checkpoint>> Open(const v1::RestoreOrder& order) override;
  void Complete(const Checkpoint& checkpoint) override;
  // One server asks all others, and tells them the step.
  bool each_finds() const override { return false; }
  absl::StatusOr<std::unique_ptr<Checkpoint>> FindRestored() override;
  absl::Status Take(const Manifest* restored, bool goes_on, bool is_elected) override;
  void Release() override {}
  absl::Status Perform(const DiskTask& task) override;

 private:
  std::shared_ptr<const OtherDisks> disks() const {
    absl::MutexLock lock(&mutex_);
    return disks_;
  }
  absl::Status OnOwn(const DiskTask& task);
  static absl::Status OnOther(const DiskTask& task, StoreClient* other);

  const int64_t rank_;
  const std::string job_digest_;
  const int64_t copies_;
  const bool has_standbys_;  // servers may be away while the job goes on
  HeldCheckpoints::Options held_options_;
  std::optional<uint64_t> restore_step_;  // where checkpoint.restore names one checkpoint
  std::unique_ptr<HeldCheckpoints> held_;
  std::unique_ptr<FolderLock> lock_;  // nullptr: nobody is asked
  mutable absl::Mutex mutex_;
  // As the coordinator said last, or the job says: of those that are away, where they were.
  std::vector<std::string> addresses_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const OtherDisks> disks_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CHECKPOINT_OWN_DISKS_STORE_H_
