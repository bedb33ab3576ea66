#include "common/base/termination.h"

#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "absl/synchronization/mutex.h"

namespace tessera {
namespace {

TEST_CASE("signals are counted, whatever else somebody sends", "[base]") {
  absl::Mutex mutex;
  int count = 0;
  const Termination termination([&](int number) {
    absl::MutexLock lock(&mutex);
    count = number;
  });
  const auto is = [&](int want) {
    absl::MutexLock lock(&mutex);
    const auto reached = [&] { return count >= want; };
    return mutex.AwaitWithTimeout(absl::Condition(&reached), absl::Seconds(20)) && count == want;
  };
  REQUIRE(kill(getpid(), SIGUSR2) == 0);
  REQUIRE(kill(getpid(), SIGTERM) == 0);
  CHECK(is(1));
  REQUIRE(kill(getpid(), SIGINT) == 0);
  CHECK(is(2));
}

}  // namespace
}  // namespace tessera
