#include "common/base/termination.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace tessera {
namespace {

// What a process is told of its signals.
class Told {
 public:
  // Whether the count is `want` within reason, and no more.
  bool Is(int want) {
    absl::MutexLock lock(&mutex_);
    const auto reached = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return count_ >= want; };
    return mutex_.AwaitWithTimeout(absl::Condition(&reached), absl::Seconds(20)) && count_ == want;
  }
  void operator()(int count, int signal) {
    absl::MutexLock lock(&mutex_);
    count_ = count;
    signal_ = signal;
  }
  // Of the last one.
  int signal() {
    absl::MutexLock lock(&mutex_);
    return signal_;
  }

 private:
  absl::Mutex mutex_;
  int count_ ABSL_GUARDED_BY(mutex_) = 0;
  int signal_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Until it waits for nobody to take it.
void AwaitTaken(int signal) {
  sigset_t pending;
  do {
    absl::SleepFor(absl::Milliseconds(1));
    REQUIRE(sigpending(&pending) == 0);
  } while (sigismember(&pending, signal) == 1);
}

// To the process: raise() would send it to this thread alone, which blocks it.
void Send(int signal) { REQUIRE(kill(getpid(), signal) == 0); }

TEST_CASE("signals are counted and told by number, whatever else somebody sends", "[base]") {
  Told told;
  const Termination termination([&](int count, int number) { told(count, number); },
                                absl::ZeroDuration());
  Send(SIGUSR2);
  Send(SIGTERM);
  CHECK(told.Is(1));
  CHECK(told.signal() == SIGTERM);
  Send(SIGINT);
  CHECK(told.Is(2));
  CHECK(told.signal() == SIGINT);
  Send(SIGHUP);
  CHECK(told.Is(3));
  CHECK(told.signal() == SIGHUP);
}

TEST_CASE("a process that held a signal up ends by it, so that its shell does not go on",
          "[base]") {
  const int number = GENERATE(SIGINT, SIGTERM, SIGHUP);
  const pid_t child = fork();
  if (child == 0) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    signal(number, SIG_IGN);
    EndBySignal(number);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == number);
  CHECK(SignalName(SIGINT) == "SIGINT");
}

TEST_CASE("signals that come together are one", "[base]") {
  Told told;
  {
    const Termination termination([&](int count, int number) { told(count, number); },
                                  absl::Hours(1));
    Send(SIGTERM);
    CHECK(told.Is(1));
    for (int signal : {SIGTERM, SIGINT, SIGHUP}) {
      Send(signal);
      AwaitTaken(signal);
    }
  }
  CHECK(told.Is(1));
}

TEST_CASE("a signal counts from when it came, however long it takes to heed the first", "[base]") {
  Told told;
  absl::Notification goes_on;
  {
    const Termination termination(
        [&](int count, int number) {
          goes_on.WaitForNotification();
          told(count, number);
        },
        absl::Seconds(10));
    Send(SIGTERM);
    AwaitTaken(SIGTERM);
    Send(SIGTERM);
    AwaitTaken(SIGTERM);
    goes_on.Notify();
    CHECK(told.Is(1));
  }
  CHECK(told.Is(1));
}

TEST_CASE("who ignores SIGHUP when it starts goes on ignoring it", "[base]") {
  REQUIRE(signal(SIGHUP, SIG_IGN) != SIG_ERR);
  Told told;
  {
    // Blocked by the others of this process.
    sigset_t hang_up;
    sigemptyset(&hang_up);
    sigaddset(&hang_up, SIGHUP);
    REQUIRE(pthread_sigmask(SIG_UNBLOCK, &hang_up, nullptr) == 0);
    const Termination termination([&](int count, int number) { told(count, number); },
                                  absl::ZeroDuration());
    Send(SIGHUP);
    Send(SIGTERM);
    CHECK(told.Is(1));
  }
  CHECK(told.Is(1));
  REQUIRE(signal(SIGHUP, SIG_DFL) != SIG_ERR);
}

}  // namespace
}  // namespace tessera
