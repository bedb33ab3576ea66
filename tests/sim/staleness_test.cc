// The staleness that a real shard counts, against what the times of its workers predict.
//
// K workers that do not wait for each other pull, compute for c, push, and pull again g later. While
// one computes, each other one pushes c / (c + g) times on average, whatever its speed: mean
// staleness is (K - 1) c / (c + g) where each push is a version, and 1 / s of that where s are. In
// lockstep (all push, then all pull) the i-th push of a round is i - 1 versions late: (K - 1) / 2.
#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include "common/consistency/none.h"
#include "common/consistency/softsync.h"
#include "common/rule/add.h"
#include "tests/server/shard/shard_fixture.h"
#include "tests/sim/dice.h"
#include "tests/sim/event_queue.h"

namespace tessera {
namespace {

constexpr int kExchanges = 400;

struct Pace {
  double compute = 1;
  double gap = 0;
  // Workers' own times are these, times a factor in [1 - spread, 1 + spread]; each exchange again
  // takes between half and one and a half times as long.
  double spread = 0;
};

class Workers {
 public:
  Workers(int count, Pace pace, std::unique_ptr<ConsistencyPolicy> policy, uint64_t seed)
      : pace_(pace), dice_(seed), server_(ZeroMatrix(1, 1), std::move(policy), MakeAdd()) {
    server_.shard.SetPlan(PlanOfFirst(count));
    factors_.push_back(0);
    done_.assign(count + 1, 0);
    for (int k = 1; k <= count; ++k) {
      factors_.push_back(1 + pace.spread * (2 * Unit() - 1));
      // Not all at once.
      const uint64_t member = k;
      queue_.At(After(member, (pace.compute + pace.gap) * Unit()),
                [this, member] { Pull(member); });
    }
  }

  double MeanStaleness() {
    while (queue_.RunNext()) continue;
    const ShardCounters counters = server_.shard.counters();
    return static_cast<double>(counters.staleness_sum - skipped_sum_) /
           static_cast<double>(counters.pushes - skipped_);
  }

 private:
  double Unit() { return static_cast<double>(dice_.Next() >> 11) * 0x1p-53; }
  absl::Time After(uint64_t member, double time) {
    return queue_.now() + absl::Seconds(time * factors_[member]);
  }

  void Pull(uint64_t member) {
    const Version base = server_.shard.ReadNow().version;
    queue_.At(After(member, pace_.compute * (0.5 + Unit())), [this, member, base] {
      ReceivedPush push = server_.Good(member, ++done_[member], {1});
      push.base = base;
      REQUIRE(server_.shard.Accept(std::move(push)).ok());
      server_.Settle();
      // The first exchanges are no steady state.
      if (done_[member] < kExchanges / 10) {
        skipped_ = server_.shard.counters().pushes;
        skipped_sum_ = server_.shard.counters().staleness_sum;
      }
      if (ended_ || done_[member] == kExchanges) {
        // Nor are the last, when fewer and fewer work.
        ended_ = true;
        return;
      }
      queue_.At(After(member, pace_.gap * (0.5 + Unit())), [this, member] { Pull(member); });
    });
  }

  const Pace pace_;
  Dice dice_;
  EventQueue queue_;
  ShardFixture server_;
  std::vector<double> factors_;
  std::vector<int> done_;
  bool ended_ = false;
  uint64_t skipped_ = 0;
  uint64_t skipped_sum_ = 0;
};

TEST_CASE("the staleness of async sgd is (K - 1) c / (c + g) for any gap and speeds",
          "[staleness]") {
  const int workers = GENERATE(2, 5, 16, 40);
  for (const double gap : {0.02, 0.5, 1.0, 3.0}) {
    for (const double spread : {0.0, 0.4, 0.8}) {
      const double want = (workers - 1) / (1 + gap);
      const double got =
          Workers(workers, {1, gap, spread}, MakeNone(StalenessWeight()), 7 + workers)
              .MeanStaleness();
      INFO(workers << " workers, gap " << gap << ", spread " << spread);
      CHECK(got == Approx(want).epsilon(0.1));
    }
  }
}

TEST_CASE("softsync divides staleness by the pushes of an update", "[staleness]") {
  const int workers = GENERATE(8, 30);
  for (const int pushes : {2, 4, workers}) {
    for (const double gap : {0.02, 1.0}) {
      const double want = (workers - 1) / (1 + gap) / pushes;
      const double got =
          Workers(workers, {1, gap, 0.3}, MakeSoftsync(pushes, StalenessWeight()), 11)
              .MeanStaleness();
      INFO(workers << " workers, " << pushes << " pushes, gap " << gap);
      CHECK(got == Approx(want).epsilon(0.1));
    }
  }
}

// All push, then all pull, round after round.
double InLockstep(int workers, std::unique_ptr<ConsistencyPolicy> policy) {
  ShardFixture server(ZeroMatrix(1, 1), std::move(policy), MakeAdd());
  server.shard.SetPlan(PlanOfFirst(workers));
  for (int exchange = 1; exchange <= 50; ++exchange) {
    const Version base = server.shard.ReadNow().version;
    for (int k = 1; k <= workers; ++k) {
      ReceivedPush push = server.Good(k, exchange, {1});
      push.base = base;
      REQUIRE(server.shard.Accept(std::move(push)).ok());
      server.Settle();
    }
  }
  const ShardCounters counters = server.shard.counters();
  return static_cast<double>(counters.staleness_sum) / static_cast<double>(counters.pushes);
}

TEST_CASE("in lockstep async sgd is (K - 1) / 2 late, and softsync of all never", "[staleness]") {
  for (const int workers : {1, 2, 9, 30}) {
    CHECK(InLockstep(workers, MakeNone(StalenessWeight())) == Approx((workers - 1) / 2.0));
    CHECK(InLockstep(workers, MakeSoftsync(workers, StalenessWeight())) == 0);
  }
}

}  // namespace
}  // namespace tessera
