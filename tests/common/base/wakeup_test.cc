#include "common/base/wakeup.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <thread>

#include "common/base/steady_clock.h"

namespace tessera {
namespace {

TEST_CASE("a notification before the wait ends it at once, and counts once", "[base]") {
  Wakeup wakeup;
  wakeup.Notify();
  wakeup.Notify();
  CHECK(wakeup.WaitUntil(absl::InfiniteFuture()));
  CHECK_FALSE(wakeup.WaitFor(absl::ZeroDuration()));
}

TEST_CASE("a wait that nobody ends lasts until its limit", "[base]") {
  Wakeup wakeup;
  const absl::Time begin = SteadyNow();
  CHECK_FALSE(wakeup.WaitFor(absl::Milliseconds(20)));
  CHECK(SteadyNow() - begin >= absl::Milliseconds(20));
  CHECK_FALSE(wakeup.WaitUntil(begin));
  CHECK_FALSE(wakeup.WaitUntil(absl::InfinitePast()));
}

TEST_CASE("another thread ends a wait without limit, which may then be destroyed", "[base]") {
  for (int i = 0; i < 200; ++i) {
    auto wakeup = std::make_unique<Wakeup>();
    std::thread other([&wakeup = *wakeup] { wakeup.Notify(); });
    CHECK(wakeup->WaitUntil(absl::InfiniteFuture()));
    wakeup.reset();
    other.join();
  }
}

TEST_CASE("whoever sees the change may destroy it, whatever ended the wait before", "[base]") {
  for (int i = 0; i < 200; ++i) {
    auto wakeup = std::make_unique<Wakeup>();
    std::atomic<bool> changed{false};
    std::thread other([&wakeup = *wakeup, &changed] {
      wakeup.Notify();
      wakeup.NotifyAfter([&changed] { changed.store(true); });
    });
    while (!changed.load()) {
    }
    wakeup.reset();
    other.join();
  }
}

}  // namespace
}  // namespace tessera
