// SIGTERM, SIGINT and SIGHUP as calls on an ordinary thread.
#ifndef TESSERA_COMMON_BASE_TERMINATION_H_
#define TESSERA_COMMON_BASE_TERMINATION_H_

#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tessera {

// What asks a process to end may send a signal to it and then to its group, or a terminal that goes away both SIGHUP
// and, by the shell, SIGTERM: signals so close together are one.
constexpr absl::Duration kOneSignal = absl::Milliseconds(300);

// Construct in main before any other thread starts: it blocks the signals for all threads that
// follow. One per process. SIGHUP stays ignored where it was when the program started (nohup).
class Termination {
 public:
  // `on_signal` is called on a thread of its own, with 1 for the first signal, 2 for the second,
  // and so on, one call after the other. Signals within `one_signal` of the last that counted do not count,
  // however long a call takes.
  explicit Termination(std::function<void(int count)> on_signal,
                       absl::Duration one_signal = kOneSignal);
  // Waits for a call in progress; signals that came since are not told any more.
  ~Termination();

 private:
  void Take(absl::Duration one_signal);
  void Tell(const std::function<void(int count)>& on_signal);

  absl::Mutex mutex_;
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  int count_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread taker_;
  std::thread teller_;
};

}  // namespace tessera

#endif  // TESSERA_COMMON_BASE_TERMINATION_H_
