#include "worker/rpc/call_board.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/base/steady_clock.h"

namespace tessera {
namespace {

// Nobody waits longer, and a limit that is further away is looked at again.
constexpr absl::Duration kPollMax = absl::Hours(1);
// How often a board without a bell is looked at.
constexpr absl::Duration kPollWithoutBell = absl::Milliseconds(5);

}  // namespace

CallBoard::CallBoard() : bell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void CallBoard::NotifyLocked() {
  if (notified_) return;
  notified_ = true;
  // A thread that does not wait looks before it does.
  if (!is_waiting_) return;
  rung_ = true;
  const uint64_t one = 1;
  static_cast<void>(!write(bell_.get(), &one, sizeof one));
}

void CallBoard::WaitUntil(absl::Time deadline, absl::Span<const int> sockets) {
  std::vector<pollfd> polled = {{bell_.get(), POLLIN, 0}};
  for (const int socket : sockets) polled.push_back({socket, POLLIN, 0});
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      // The notice is consumed under the lock: one that comes from here on wakes the next wait.
      if (std::exchange(notified_, false)) return;
      is_waiting_ = true;
    }
    // A notification from here on rings the bell, which ends the poll even where that has not begun.
    absl::Duration left = std::min(deadline - SteadyNow(), kPollMax);
    if (!bell_.is_open()) left = std::min(left, kPollWithoutBell);
    const timespec limit = absl::ToTimespec(std::max(left, absl::ZeroDuration()));
    const int ready = ppoll(polled.data(), polled.size(), &limit, nullptr);
    absl::MutexLock lock(&mutex_);
    is_waiting_ = false;
    if (std::exchange(rung_, false)) {
      uint64_t count;
      static_cast<void>(!read(bell_.get(), &count, sizeof count));
    }
    const bool was_notified = std::exchange(notified_, false);
    if (was_notified || ready > 0 || SteadyNow() >= deadline) return;
  }
}

}  // namespace tessera
