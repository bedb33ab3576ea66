// SIGTERM and SIGINT as calls on an ordinary thread.
#ifndef TESSERA_COMMON_BASE_TERMINATION_H_
#define TESSERA_COMMON_BASE_TERMINATION_H_

#include <atomic>
#include <functional>
#include <thread>

namespace tessera {

// Construct in main before any other thread starts: it blocks both signals for all threads that
// follow. One per process.
class Termination {
 public:
  // `on_signal` is called on a thread of its own, with 1 for the first signal, 2 for the second,
  // and so on.
  explicit Termination(std::function<void(int count)> on_signal);
  ~Termination();

 private:
  std::atomic<bool> ends_ = false;
  std::thread thread_;
};

}  // namespace tessera

#endif  // TESSERA_COMMON_BASE_TERMINATION_H_
