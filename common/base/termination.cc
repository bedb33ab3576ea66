#include "common/base/termination.h"

#include <pthread.h>
#include <signal.h>

#include <utility>

namespace tessera {
namespace {

// Sent by the destructor to end the thread.
constexpr int kEnd = SIGUSR2;

sigset_t Signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigaddset(&set, kEnd);
  return set;
}

}  // namespace

Termination::Termination(std::function<void(int count)> on_signal) {
  const sigset_t set = Signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
  thread_ = std::thread([this, on_signal = std::move(on_signal)] {
    const sigset_t awaited = Signals();
    int count = 0;
    while (true) {
      int signal = 0;
      if (sigwait(&awaited, &signal) != 0) continue;
      // Anybody may send it.
      if (signal != kEnd) {
        on_signal(++count);
      } else if (ends_) {
        return;
      }
    }
  });
}

Termination::~Termination() {
  ends_ = true;
  pthread_kill(thread_.native_handle(), kEnd);
  thread_.join();
}

}  // namespace tessera
