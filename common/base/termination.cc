#include "common/base/termination.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/steady_clock.h"

namespace tessera {
namespace {

// Sent by the destructor to end the thread.
constexpr int kEnd = SIGUSR2;

// Whether the signal was ignored when the program started, as nohup has SIGHUP.
bool IsIgnored(int signal) {
  struct sigaction action = {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

// The signals that ask a process to end.
sigset_t Signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  // SIGHUP is left alone where it is ignored: blocked, it would come all the same.
  if (!IsIgnored(SIGHUP)) sigaddset(&set, SIGHUP);
  sigaddset(&set, kEnd);
  return set;
}

}  // namespace

Termination::Termination(OnSignal on_signal, absl::Duration one_signal) {
  const sigset_t set = Signals();
  // Every thread that starts later inherits the mask, so that only taker_ gets these signals.
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
  taker_ = std::thread([this, one_signal] { Take(one_signal); });
  teller_ = std::thread([this, on_signal = std::move(on_signal)] { Tell(on_signal); });
}

// The thread that takes signals never does what a signal leads to, as it would not know when the next one came.
void Termination::Take(absl::Duration one_signal) {
  const sigset_t awaited = Signals();
  absl::Time counted = absl::InfinitePast();
  while (true) {
    int signal = 0;
    if (sigwait(&awaited, &signal) != 0) continue;
    absl::MutexLock lock(&mutex_);
    // Anybody may send this signal: it counts only once the destructor has run.
    if (signal == kEnd && ends_) return;
    // A process group and a parent may both pass the same Ctrl-C on; within `one_signal` that counts as one.
    if (signal == kEnd || SteadyNow() - counted < one_signal) continue;
    counted = SteadyNow();
    signals_.push_back(signal);
  }
}

void Termination::Tell(const OnSignal& on_signal) {
  for (size_t told = 0; true;) {
    int signal = 0;
    {
      absl::MutexLock lock(&mutex_);
      const auto has_news = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
        return ends_ || signals_.size() > told;
      };
      mutex_.Await(absl::Condition(&has_news));
      if (ends_) return;
      signal = signals_[told++];
    }
    on_signal(static_cast<int>(told), signal);
  }
}

Termination::~Termination() {
  {
    absl::MutexLock lock(&mutex_);
    ends_ = true;
  }
  pthread_kill(taker_.native_handle(), kEnd);
  taker_.join();
  teller_.join();
}

std::string SignalName(int signal) {
  const char* const name = sigabbrev_np(signal);
  return name != nullptr ? absl::StrCat("SIG", name) : absl::StrCat("signal ", signal);
}

void EndBySignal(int number) {
  signal(number, SIG_DFL);
  sigset_t set;
  sigemptyset(&set);
  // The signal must be unblocked, or raise would leave it pending and the process would end with another status.
  sigaddset(&set, number);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  raise(number);
  _exit(kSignalExitCode + number);
}

}  // namespace tessera
