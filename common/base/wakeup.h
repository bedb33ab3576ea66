// A wait that another thread ends, with a limit by the steady clock.
//
// Abseil's waits count their limits by the system's clock: where that is set back by an hour, a wait of a
// second lasts an hour. No thread that has a lease to keep may wait like that.
#ifndef TESSERA_COMMON_BASE_WAKEUP_H_
#define TESSERA_COMMON_BASE_WAKEUP_H_

#include <condition_variable>
#include <mutex>

#include "absl/time/time.h"

namespace tessera {

// A wait of one thread, which any thread may end. What has changed is the caller's to look up, after the wait and
// under its own lock: notify after the change.
class Wakeup {
 public:
  Wakeup() = default;
  Wakeup(const Wakeup&) = delete;
  Wakeup& operator=(const Wakeup&) = delete;
  // Waits for a notification that is under way.
  ~Wakeup() { const std::lock_guard<std::mutex> lock(mutex_); }

  // Ends the wait under way, or the next one at once. However often, it counts once. The waiting thread
  // may destroy this as soon as it has returned.
  void Notify() {
    NotifyAfter([] {});
  }
  // Makes a change and notifies. The waiting thread may destroy this as soon as it sees the change, which
  // may be after a wait that an earlier notification ended.
  template <typename Change>
  void NotifyAfter(const Change& change) {
    const std::lock_guard<std::mutex> lock(mutex_);
    change();
    NotifyLocked();
  }
  // Waits for a Notify since the last wait, or until `deadline` of SteadyNow. True: it was notified.
  bool WaitUntil(absl::Time deadline);
  bool WaitFor(absl::Duration limit);

 private:
  void NotifyLocked();

  // This is no absl::Mutex, as only the standard library's waits go by the steady clock.
  std::mutex mutex_;
  std::condition_variable changed_;
  bool notified_ = false;
};

}  // namespace tessera

#endif  // TESSERA_COMMON_BASE_WAKEUP_H_
