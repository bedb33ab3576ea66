// Makes the shard that a shard's thread is to have next: initial values, and what a checkpoint has, take longer
// than a lease where the shard is large, and the shard's thread has to speak meanwhile.
#ifndef TESSERA_SERVER_SHARD_LOADER_H_
#define TESSERA_SERVER_SHARD_LOADER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/shard/shard.h"
#include "server/shard/shard_thread.h"

namespace tessera {

// Runs a thread from construction to destruction, which makes one shard at a time. Any thread.
class ShardLoader {
 public:
  // `shard` outlives it.
  explicit ShardLoader(ShardThread* shard);
  // Gives up what is being made, and nobody hears of it.
  ~ShardLoader();

  // Called on this object's thread. `goes_on`, to be asked every now and then, says no once the shard is not
  // wanted any more; whatever is returned then is dropped.
  using Make =
      std::function<absl::StatusOr<std::unique_ptr<Shard>>(const std::function<bool()>& goes_on)>;
  // The shard's thread gets what `make` makes, and `done` hears of it there: ShardThread::AwaitReplacement, with
  // `number` and `why`, and Replace. One of an earlier number is given up, and nobody hears of it. Returns at once.
  void Load(uint64_t number, const absl::Status& why, Make make,
            std::function<void(absl::Status)> done);

 private:
  struct Task {
    uint64_t number = 0;
    Make make;
    std::function<void(absl::Status)> done;
  };

  void Run();
  // Nothing else is to be made than the shard of this number.
  bool Wants(uint64_t number);

  ShardThread* const shard_;
  absl::Mutex mutex_;
  std::optional<Task> next_ ABSL_GUARDED_BY(mutex_);
  uint64_t wanted_ ABSL_GUARDED_BY(mutex_) = 0;  // the last number
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_LOADER_H_
