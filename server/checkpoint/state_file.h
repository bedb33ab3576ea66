// The coordinator's state on a disk: a folder with
//
//   state   8 bytes, the XXH3 sum of what follows, little-endian; then a CoordinatorState
//           (proto/coordinator_state.proto). Written under another name, synced and renamed: it is whole,
//           whenever the process was killed or the power failed.
//   lock    held (flock) by the process whose state this is
#ifndef TESSERA_SERVER_CHECKPOINT_STATE_FILE_H_
#define TESSERA_SERVER_CHECKPOINT_STATE_FILE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/checkpoint/folder_lock.h"
#include "server/control/state_store.h"

namespace tessera {

// The most bytes of a state: a process that goes on from it reads no more.
constexpr int64_t kStateBytesMax = int64_t{1} << 30;

class StateFile final : public StateStore {
 public:
  // Makes the folder, but not those above it, and takes the lock.
  //   kFailedPrecondition  another process has it
  //   and folder_lock.h's codes
  static absl::StatusOr<std::unique_ptr<StateFile>> Open(std::string folder,
                                                         int64_t bytes_max = kStateBytesMax);

  // The state that was written last; nullopt: nothing was. kDataLoss: the file is not what was written.
  absl::StatusOr<std::optional<v1::CoordinatorState>> Read() const;

  // A disk that fails does not end the job, nor does a state that is too large to be read again, so that this never
  // fails: what was kept is removed, as nobody may go on from it, and each later call tries again. Where it cannot be
  // removed either, whoever finds it is told that others know better (server/control/kept_coordinator.h). Its
  // failpoints are "state.file.write" and so on (common/checkpoint/durable_file.h).
  absl::Status Write(const v1::CoordinatorState& state) override;
  bool MayLag() const override { return true; }
  bool IsHeld(absl::Time now) const override { return true; }
  std::string Describe() const override;

 private:
  StateFile(std::string folder, std::unique_ptr<FolderLock> lock, int64_t bytes_max)
      : folder_(std::move(folder)), lock_(std::move(lock)), bytes_max_(bytes_max) {}
  absl::Status WriteWhole(const v1::CoordinatorState& state);
  absl::Status Remove();
  std::string path() const { return folder_ + "/state"; }

  const std::string folder_;
  const std::unique_ptr<FolderLock> lock_;
  const int64_t bytes_max_;
  mutable absl::Mutex mutex_;
  absl::Status broken_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CHECKPOINT_STATE_FILE_H_
