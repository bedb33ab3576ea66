// How many of gRPC's threads take callbacks, and that they do not pause.
#include "common/rpc/callback_threads.h"

#include <sched.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <thread>

#include <grpc/support/cpu.h>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/steady_clock.h"
#include "common/rpc/transport.h"

namespace tessera {
namespace {

// The threads that take many callbacks at once, each of which takes a while.
size_t ThreadsThatCall() {
  constexpr int kCalls = 100;
  absl::Mutex mutex;
  std::set<std::thread::id> threads;
  absl::BlockingCounter left(kCalls);
  for (int i = 0; i < kCalls; ++i) {
    RunAsCallback([&] {
      absl::SleepFor(absl::Milliseconds(1));
      {
        absl::MutexLock lock(&mutex);
        threads.insert(std::this_thread::get_id());
      }
      left.DecrementCount();
    });
  }
  left.Wait();
  return threads.size();
}

absl::Duration TimeToCall() {
  absl::Notification called;
  const absl::Time start = SteadyNow();
  RunAsCallback([&] { called.Notify(); });
  called.WaitForNotification();
  return SteadyNow() - start;
}

int CoresOfTest() {
  cpu_set_t cores;
  REQUIRE(sched_getaffinity(0, sizeof(cores), &cores) == 0);
  return CPU_COUNT(&cores);
}

TEST_CASE("callbacks have half as many threads as cores, and at least one") {
  CHECK(CallbackThreadsWanted(1) == 1);
  CHECK(CallbackThreadsWanted(2) == 1);
  CHECK(CallbackThreadsWanted(3) == 1);
  CHECK(CallbackThreadsWanted(4) == 2);
  CHECK(CallbackThreadsWanted(64) == 32);
  CHECK(GrpcCallbackThreads(1) == 2);
  CHECK(GrpcCallbackThreads(8) == 4);
  CHECK(GrpcCallbackThreads(64) == 16);
}

TEST_CASE("a process that has connections leaves gRPC no more threads than its cores want") {
  (void)OpenChannel("127.0.0.1:1");
  const int has = GrpcCallbackThreads(static_cast<int>(gpr_cpu_num_cores()));
  const int wanted = std::min(has, CallbackThreadsWanted(CoresOfTest()));
  // The surplus ones are taken one after another, by callbacks that wait.
  const absl::Time end = SteadyNow() + absl::Seconds(10);
  size_t threads = ThreadsThatCall();
  while (threads != static_cast<size_t>(wanted) && SteadyNow() < end) threads = ThreadsThatCall();
  CHECK(threads == static_cast<size_t>(wanted));
}

TEST_CASE(
    "a callback that comes after a second's silence does not wait for gRPC's threads to look "
    "again") {
  (void)OpenChannel("127.0.0.1:1");
  constexpr absl::Duration kAtOnce = absl::Milliseconds(60);
  absl::Duration quickest = absl::InfiniteDuration();
  // A busy machine may hold up each of them.
  for (int i = 0; i < 10 && quickest >= kAtOnce; ++i) {
    (void)TimeToCall();
    // By then they would be in the midst of a pause of 100 ms.
    absl::SleepFor(absl::Milliseconds(1030));
    quickest = std::min(quickest, TimeToCall());
  }
  CHECK(quickest < kAtOnce);
}

}  // namespace
}  // namespace tessera
