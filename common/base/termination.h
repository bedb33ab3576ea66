// SIGTERM, SIGINT and SIGHUP as calls on an ordinary thread.
#ifndef TESSERA_COMMON_BASE_TERMINATION_H_
#define TESSERA_COMMON_BASE_TERMINATION_H_

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tessera {

// Signals so close together are one: what asks a process to end may send a signal to it and then to its group, or
// a terminal that goes away both SIGHUP and, by the shell, SIGTERM.
constexpr absl::Duration kOneSignal = absl::Milliseconds(300);

// Construct in main before any other thread starts: it blocks the signals for all threads that
// follow. One per process. SIGHUP stays ignored where it was when the program started (nohup).
class Termination {
 public:
  // Called on a thread of its own, with 1 for the first signal, 2 for the second, and so on, one call after the
  // other, and with the signal's number. Signals within `one_signal` of the last that counted do not count,
  // however long a call takes.
  using OnSignal = std::function<void(int count, int signal)>;
  explicit Termination(OnSignal on_signal, absl::Duration one_signal = kOneSignal);
  // Waits for a call in progress; signals that came since are not told any more.
  ~Termination();

 private:
  void Take(absl::Duration one_signal);
  void Tell(const OnSignal& on_signal);

  absl::Mutex mutex_;
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  // The signals that counted, in their order.
  std::vector<int> signals_ ABSL_GUARDED_BY(mutex_);
  std::thread taker_;
  std::thread teller_;
};

// The signal's name: "SIGTERM".
std::string SignalName(int signal);

// What is added to a signal's number for the exit code that a shell shows of a process that it ended: 130 after
// Ctrl-C. A loop of commands goes on after one that merely ends with that number: EndBySignal is what ends the
// loop.
constexpr int kSignalExitCode = 128;

// Ends this process as if it had not held the signal up, without destructors or what is still in buffers. With the
// shell's exit code where the kernel keeps the signal from ending it, as in a container's first process. Any thread.
[[noreturn]] void EndBySignal(int signal);

}  // namespace tessera

#endif  // TESSERA_COMMON_BASE_TERMINATION_H_
