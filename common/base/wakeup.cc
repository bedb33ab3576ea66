#include "common/base/wakeup.h"

#include <chrono>

#include "common/base/steady_clock.h"

namespace tessera {

void Wakeup::NotifyLocked() {
  if (notified_) return;
  notified_ = true;
  // The notification holds the lock, so that the waiting thread cannot have destroyed the condition yet.
  changed_.notify_one();
}

bool Wakeup::WaitUntil(absl::Time deadline) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto notified = [this] { return notified_; };
  // Such a limit is further away than anybody waits, and than the library's arithmetic goes.
  if (deadline - SteadyNow() > absl::Hours(24 * 365)) {
    changed_.wait(lock, notified);
  } else {
    changed_.wait_until(lock,
                        std::chrono::steady_clock::time_point(
                            absl::ToChronoNanoseconds(deadline - absl::UnixEpoch())),
                        notified);
  }
  // The notice is consumed under the lock: one that comes from here on wakes the next wait.
  const bool was = notified_;
  notified_ = false;
  return was;
}

bool Wakeup::WaitFor(absl::Duration limit) { return WaitUntil(SteadyNow() + limit); }

}  // namespace tessera
