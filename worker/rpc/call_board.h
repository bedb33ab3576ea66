// Where the thread that has begun calls waits for what becomes of them: gRPC's threads notify, and what comes by
// sockets it reads itself, so that no other thread has to be woken for that.
#ifndef TESSERA_WORKER_RPC_CALL_BOARD_H_
#define TESSERA_WORKER_RPC_CALL_BOARD_H_

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/rpc/shared_memory/owned_descriptor.h"

namespace tessera {

// A wait of one thread, which any thread may end, as Wakeup's (common/base/wakeup.h), and sockets end it, too.
class CallBoard {
 public:
  CallBoard();
  CallBoard(const CallBoard&) = delete;
  CallBoard& operator=(const CallBoard&) = delete;
  // Waits for a notification that is under way.
  ~CallBoard() { absl::MutexLock lock(&mutex_); }

  // Ends the wait under way, or the next one at once. However often, it counts once. What has changed is the caller's
  // to look up, after the wait and under its own lock: notify after the change.
  void Notify() {
    NotifyAfter([] {});
  }
  // Makes a change and notifies. The waiting thread may destroy this as soon as it sees the change, which may be after
  // a wait that an earlier notification ended.
  template <typename Change>
  void NotifyAfter(const Change& change) {
    absl::MutexLock lock(&mutex_);
    change();
    NotifyLocked();
  }
  // Waits for a Notify since the last wait, until `deadline` of SteadyNow, or until there is something to read in one
  // of `sockets`, or its end.
  void WaitUntil(absl::Time deadline, absl::Span<const int> sockets = {});

 private:
  void NotifyLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const OwnedDescriptor bell_;  // eventfd; it has none where the process has no descriptor left
  absl::Mutex mutex_;
  bool is_waiting_ ABSL_GUARDED_BY(mutex_) = false;
  bool notified_ ABSL_GUARDED_BY(mutex_) = false;
  bool rung_ ABSL_GUARDED_BY(mutex_) = false;  // the bell
};

}  // namespace tessera

#endif  // TESSERA_WORKER_RPC_CALL_BOARD_H_
