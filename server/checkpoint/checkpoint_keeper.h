// The thread of the one process that begins and commits a job's checkpoints.
#ifndef TESSERA_SERVER_CHECKPOINT_CHECKPOINT_KEEPER_H_
#define TESSERA_SERVER_CHECKPOINT_CHECKPOINT_KEEPER_H_

#include <deque>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/checkpoint/checkpoint_store.h"
#include "server/control/checkpoints.h"

namespace tessera {

// Does what the coordinator wants done with the disk, one thing after the other, so that the coordinator
// itself never waits for it.
class CheckpointKeeper {
 public:
  // `done` is called on this object's thread after each task but those that give a checkpoint up.
  using Done = std::function<void(const DiskTask& task, const absl::Status& status)>;
  // `store` outlives it, and is taken.
  CheckpointKeeper(CheckpointStore* store, Done done);
  // Finishes all tasks that it was given.
  ~CheckpointKeeper();

  void Do(DiskTask task);
  // Somebody else begins and commits from now on: finishes the task under way, and forgets the others. None is
  // given afterwards.
  void Depose();

 private:
  void Run();

  CheckpointStore* const store_;
  const Done done_;
  absl::Mutex mutex_;
  std::deque<DiskTask> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CHECKPOINT_CHECKPOINT_KEEPER_H_
