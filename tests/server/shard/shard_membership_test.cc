// A shard while members come and go.
#include <catch2/catch.hpp>
#include <vector>

#include "common/consistency/barrier.h"
#include "common/consistency/none.h"
#include "common/rule/add.h"
#include "tests/server/shard/shard_fixture.h"

namespace tessera {
namespace {

using Values = std::vector<float>;
using Members = std::vector<uint64_t>;

// One entry, so that a push is one number.
struct BarrierShard : ShardFixture {
  explicit BarrierShard(int members) : ShardFixture(ZeroMatrix(1, 1), MakeBarrier(), MakeAdd()) {
    shard.SetPlan(PlanOfFirst(members));
  }
  float Value() { return Values()[0]; }
};

TEST_CASE("removing the missing member commits the rest", "[shard][membership]") {
  BarrierShard s(3);
  s.MustPush(1, 1, {2});
  s.MustPush(3, 1, {4});
  CHECK(s.version() == 0);
  s.shard.SetPlan(PlanOf(2, {{1, 1}, {3, 1}}));
  CHECK(s.Settle() > 0);
  CHECK(s.version() == 1);
  CHECK(s.Value() == 3);
  CHECK((*s.Read(1, 1)).has_value());
}

TEST_CASE("a removed member's folded push stays, its staged one goes", "[shard][membership]") {
  BarrierShard folded(3);
  folded.MustPush(1, 1, {9});
  std::vector<Shard::Removed> removed = folded.shard.SetPlan(PlanOf(2, {{2, 1}, {3, 1}}));
  REQUIRE(removed.size() == 1);
  CHECK(removed[0].member == MemberId(1));
  CHECK(removed[0].last_exchange == Exchange(1));
  folded.MustPush(2, 1, {3});
  folded.MustPush(3, 1, {3});
  CHECK(folded.Value() == 5);

  BarrierShard staged(3);
  staged.MustPush(3, 1, {9});  // Its rank's turn has not come.
  removed = staged.shard.SetPlan(PlanOf(2, {{1, 1}, {2, 1}}));
  REQUIRE(removed.size() == 1);
  CHECK(removed[0].last_exchange == Exchange(0));
  CHECK(staged.shard.counters().staged_bytes == 0);
  staged.MustPush(1, 1, {3});
  staged.MustPush(2, 1, {5});
  CHECK(staged.Value() == 4);
}

TEST_CASE("a removed member is refused from then on", "[shard][membership]") {
  BarrierShard s(2);
  s.shard.SetPlan(PlanOf(2, {{1, 1}}));
  CHECK(s.Push(2, 1, {1}).status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(s.Read(2, 0).status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(s.Push(1, 1, {6}).ok());
  CHECK(s.Value() == 6);
}

TEST_CASE("when all are removed what was folded is committed", "[shard][membership]") {
  BarrierShard s(2);
  s.MustPush(1, 1, {6});
  s.shard.SetPlan(PlanOf(2, {}));
  s.Settle();
  CHECK(s.version() == 1);
  CHECK(s.Value() == 6);
  CHECK(s.Settle() == 0);
}

TEST_CASE("an older or repeated plan changes nothing", "[shard][membership]") {
  BarrierShard s(2);
  s.shard.SetPlan(PlanOf(5, {{1, 1}}));
  CHECK(s.shard.SetPlan(PlanOf(4, {{1, 1}, {2, 1}})).empty());
  CHECK(s.shard.SetPlan(PlanOf(5, {})).empty());
  CHECK(s.shard.plan().generation == Generation(5));
  CHECK(s.WaitsFor() == Members{1});
}

TEST_CASE("those who have pushed are not waited for, folded or not", "[shard][membership]") {
  BarrierShard s(3);
  CHECK(s.WaitsFor() == Members{1, 2, 3});
  s.MustPush(2, 1, {1});
  CHECK(s.WaitsFor() == Members{1, 3});
  s.MustPush(1, 1, {1});
  CHECK(s.WaitsFor() == Members{3});
}

TEST_CASE("a joiner is promised the proposed exchange unless it has come", "[shard][membership]") {
  BarrierShard s(1);
  s.MustPush(1, 1, {1});
  s.MustPush(1, 2, {1});  // Now 3 is being collected.
  CHECK(s.shard.Propose(1, Exchange(4)) == Exchange(4));
  CHECK(s.shard.Propose(2, Exchange(3)) == Exchange(5));
  CHECK(s.shard.Propose(3, Exchange(1)) == Exchange(5));
}

TEST_CASE("who is asked once more for what was promised says the same, wherever the shard is",
          "[shard][membership]") {
  BarrierShard s(1);
  REQUIRE(s.shard.Propose(1, Exchange(2)) == Exchange(2));
  s.MustPush(1, 1, {1});  // Now 2 is being collected, and held.
  CHECK(s.shard.Propose(1, Exchange(2)) == Exchange(2));
  CHECK(s.shard.Propose(2, Exchange(2)) == Exchange(4));
  s.shard.Withdraw(2);
  CHECK(s.shard.Propose(1, Exchange(2)) == Exchange(4));
}

TEST_CASE("a promised exchange is held until the plan comes, and then waits for the joiner",
          "[shard][membership]") {
  BarrierShard s(1);
  REQUIRE(s.shard.Propose(1, Exchange(2)) == Exchange(2));
  s.MustPush(1, 1, {2});
  CHECK(s.version() == 1);
  s.MustPush(1, 2, {2});
  CHECK(s.version() == 1);  // Held.
  s.shard.SetPlan(PlanOf(2, {{1, 1}, {2, 2}}));
  s.Settle();
  CHECK(s.version() == 1);
  CHECK(s.WaitsFor() == Members{2});
  CHECK(**s.Read(2, 1) == Values{2});
  CHECK_FALSE((*s.Read(1, 2)).has_value());
  CHECK(s.Push(2, 1, {2})->duplicate);  // From before its time.
  REQUIRE(s.Push(2, 2, {4}).ok());
  CHECK(s.version() == 2);
  CHECK(s.Value() == 5);
}

TEST_CASE("a withdrawn promise lets the others go on", "[shard][membership]") {
  BarrierShard s(1);
  s.shard.Propose(7, Exchange(2));
  s.MustPush(1, 1, {1});
  s.MustPush(1, 2, {1});
  CHECK(s.version() == 1);
  s.shard.Withdraw(6);
  CHECK(s.Settle() == 0);
  s.shard.Withdraw(7);
  s.Settle();
  CHECK(s.version() == 2);
}

TEST_CASE("a later exchange that a shard answers with is held as well", "[shard][membership]") {
  BarrierShard s(1);
  REQUIRE(s.shard.Propose(1, Exchange(1)) == Exchange(3));
  for (int exchange = 1; exchange <= 3; ++exchange) s.MustPush(1, exchange, {1});
  CHECK(s.version() == 2);
  CHECK(s.shard.counters().collecting == Exchange(3));
  // So a second proposal of it, however late, still passes.
  s.shard.Withdraw(1);
  CHECK(s.shard.Propose(2, Exchange(4)) == Exchange(4));
}

TEST_CASE("a removal while a promise is open neither settles nor blocks it",
          "[shard][membership]") {
  BarrierShard s(2);
  s.shard.Propose(1, Exchange(2));
  s.MustPush(1, 1, {4});
  s.shard.SetPlan(PlanOf(2, {{1, 1}}));
  s.Settle();
  CHECK(s.version() == 1);
  s.MustPush(1, 2, {1});
  CHECK(s.version() == 1);
  s.shard.SetPlan(PlanOf(3, {{1, 1}, {3, 2}}));
  s.MustPush(3, 2, {3});
  CHECK(s.version() == 2);
  CHECK(s.Value() == 6);
}

TEST_CASE("a joiner after everyone has gone begins at its own exchange", "[shard][membership]") {
  BarrierShard s(1);
  s.MustPush(1, 1, {4});
  s.shard.Propose(1, Exchange(4));
  s.shard.SetPlan(PlanOf(2, {}));
  s.shard.SetPlan(PlanOf(3, {{2, 4}}));
  s.Settle();
  CHECK(**s.Read(2, 3) == Values{4});
  CHECK(s.Push(2, 4, {1}).ok());
  CHECK(s.Value() == 5);
  CHECK(s.version() == 2);
}

TEST_CASE("a promised exchange is not skipped when those before it have gone",
          "[shard][membership]") {
  BarrierShard s(1);
  s.MustPush(1, 1, {4});
  s.shard.SetPlan(PlanOf(2, {{1, 1}, {2, 7}}));
  REQUIRE(s.shard.Propose(1, Exchange(6)) == Exchange(6));
  s.shard.SetPlan(PlanOf(3, {{2, 7}}));
  // What it reads after exchange 6 must contain the joiner's.
  CHECK_FALSE((*s.Read(2, 6)).has_value());
  s.shard.SetPlan(PlanOf(4, {{2, 7}, {3, 6}}));
  CHECK_FALSE((*s.Read(2, 6)).has_value());
  CHECK(**s.Read(3, 5) == Values{4});
  s.MustPush(3, 6, {2});
  CHECK(**s.Read(2, 6) == Values{6});
}

TEST_CASE("without consistency a joiner holds nobody up", "[shard][membership]") {
  ShardFixture s(ZeroMatrix(1, 1), MakeNone(1.0f), MakeAdd());
  s.shard.SetPlan(PlanOfFirst(1));
  CHECK(s.shard.Propose(1, Exchange(1)) == Exchange(1));
  CHECK(s.Push(1, 1, {1}).ok());
  CHECK(s.version() == 1);
  s.shard.SetPlan(PlanOf(2, {{1, 1}, {2, 40}}));
  CHECK(s.Push(2, 40, {1}).ok());
  CHECK(s.Push(2, 39, {1})->duplicate);
  CHECK(s.Values() == Values{2});
  CHECK((*s.Read(2, 40)).has_value());
}

}  // namespace
}  // namespace tessera
