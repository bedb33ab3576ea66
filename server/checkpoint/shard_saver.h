// Writes a shard's part of a checkpoint while the shard goes on.
#ifndef TESSERA_SERVER_CHECKPOINT_SHARD_SAVER_H_
#define TESSERA_SERVER_CHECKPOINT_SHARD_SAVER_H_

#include <deque>
#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/part_file.h"
#include "server/shard/shard.h"

namespace tessera {

// Runs a thread from construction to destruction, which writes one file at a time.
class ShardSaver {
 public:
  // Starts the thread. `model` says which parameters and states there are and how many shards; `parts` opens the
  // files.
  ShardSaver(OpenPart parts, Manifest model, int64_t shard);
  // Finishes what is being written; what waits is not begun.
  ~ShardSaver();

  using Done = std::function<void(const ShardCopy& copy, const absl::StatusOr<CheckpointFile>& file,
                                  absl::Duration taken)>;
  // Writes `copy`, which was made just now, and lets go of it before `done` is called, on this object's
  // thread. Returns at once.
  //   kResourceExhausted  the disk is full, or copies come faster than they can be written
  //   and DurableFile's other codes
  void Save(ShardCopy copy, Done done);

 private:
  struct Task {
    ShardCopy copy;
    Done done;
    absl::Time copied;
  };

  void Run();
  absl::StatusOr<CheckpointFile> Write(const ShardCopy& copy) const;

  const OpenPart parts_;
  const Manifest model_;
  const int64_t shard_;
  absl::Mutex mutex_;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CHECKPOINT_SHARD_SAVER_H_
