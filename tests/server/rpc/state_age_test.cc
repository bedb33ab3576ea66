// LiveCoordinator keeps its state now and then, although nothing changes.
#include <memory>
#include <string>
#include <utility>

#include <catch2/catch.hpp>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/base/log.h"
#include "common/base/steady_clock.h"
#include "server/rpc/live_coordinator.h"

namespace tessera {
namespace {

// Its disk may be slow.
class AgingStore final : public StateStore {
 public:
  absl::Status Write(const v1::CoordinatorState& state) override {
    absl::MutexLock lock(&mutex_);
    ++begun_;
    mutex_.Await(absl::Condition(
        +[](bool* hangs) { return !*hangs; }, &hangs_));
    kept_ = state;
    ++kept_count_;
    return absl::OkStatus();
  }
  bool MayLag() const override { return true; }
  bool IsHeld(absl::Time now) const override { return true; }
  std::string Describe() const override { return "memory"; }

  // The last state, once one was kept that had not been before.
  v1::CoordinatorState AwaitKept() {
    absl::MutexLock lock(&mutex_);
    AwaitMore(kept_count_);
    return kept_;
  }
  // Writes end no more; returns when one that does not has begun.
  void Hang() {
    absl::MutexLock lock(&mutex_);
    hangs_ = true;
    AwaitMore(begun_);
  }
  void HangNoMore() {
    absl::MutexLock lock(&mutex_);
    hangs_ = false;
  }

 private:
  void AwaitMore(const int& count) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto has_grown = [&count, before = count] { return count > before; };
    REQUIRE(mutex_.AwaitWithTimeout(absl::Condition(&has_grown), absl::Seconds(10)));
  }

  absl::Mutex mutex_;
  int begun_ = 0;
  int kept_count_ = 0;
  bool hangs_ = false;
  v1::CoordinatorState kept_;
};

TEST_CASE("a state that nothing changes is kept again, and is not late when that takes long",
          "[control][live]") {
  SetLogLevel(LogLevel::kError);
  AgingStore store;
  LiveCoordinator live(absl::Seconds(2), /*state_age_max=*/absl::Milliseconds(20));
  JobFacts facts;
  facts.digest = "d1";
  facts.epochs = 1;
  v1::CoordinatorWord word;
  word.set_run(9);
  word.set_term(1);
  REQUIRE(live.Install(*Coordinator::Create(std::move(facts), SteadyNow()), word, &store).ok());
  const v1::CoordinatorState first = store.AwaitKept(), second = store.AwaitKept();
  CHECK(second.changes() == first.changes());
  CHECK(second.saved_at() > first.saved_at());
  CHECK(second.saved_at_day() > first.saved_at_day());
  CHECK(second.clock_name() == SteadyClockName());
  store.Hang();
  absl::SleepFor(2 * kKeepPatience);
  CHECK(live.Status().coordinator().store() == "memory");
  store.HangNoMore();
  live.Vacate("the test ends");
}

}  // namespace
}  // namespace tessera
