// Room for pushes that are on their way: nobody starves, nothing leaks.
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <vector>

#include "common/consistency/barrier.h"
#include "common/consistency/none.h"
#include "common/rule/add.h"
#include "tests/server/shard/shard_fixture.h"

namespace tessera {
namespace {

// A slice of 32 MiB, so that the limit is two slices at most and not the least staging size.
constexpr int64_t kRows = 8;
constexpr int64_t kColumns = int64_t{1} << 20;
constexpr int64_t kBytes = kRows * kColumns * 4;

std::unique_ptr<ConsistencyPolicy> PolicyOf(bool barrier) {
  return barrier ? MakeBarrier() : MakeNone(1.0f);
}

TEST_CASE("under a barrier the next in order has a place though others took all",
          "[shard][staging]") {
  ShardFixture s(ZeroMatrix(kRows, kColumns), MakeBarrier(), MakeAdd());
  s.shard.SetPlan(PlanOfFirst(4));
  CHECK(s.shard.Reserve(MemberId(3), kBytes));
  CHECK_FALSE(s.shard.Reserve(MemberId(2), kBytes));
  CHECK_FALSE(s.shard.Reserve(MemberId(4), kBytes));
  CHECK(s.shard.Reserve(MemberId(1), kBytes));
  s.shard.Release(MemberId(3), kBytes);
  s.shard.Release(MemberId(1), kBytes);
  CHECK(s.shard.Reserve(MemberId(4), kBytes));
}

TEST_CASE("without order two pushes fit, and one always does", "[shard][staging]") {
  ShardFixture s(ZeroMatrix(kRows, kColumns), MakeNone(1.0f), MakeAdd());
  s.shard.SetPlan(PlanOfFirst(3));
  CHECK(s.shard.Reserve(MemberId(1), kBytes));
  CHECK(s.shard.Reserve(MemberId(2), kBytes));
  CHECK_FALSE(s.shard.Reserve(MemberId(3), kBytes));
  s.shard.Release(MemberId(2), kBytes);
  CHECK(s.shard.Reserve(MemberId(3), kBytes));
}

TEST_CASE("a staged push holds its place until it is folded", "[shard][staging]") {
  ShardFixture s(ZeroMatrix(kRows, kColumns), MakeBarrier(), MakeAdd());
  s.shard.SetPlan(PlanOfFirst(3));
  const std::vector<float> values(kRows * kColumns, 1);
  const auto push = [&](uint64_t member) {
    REQUIRE(s.shard.Reserve(MemberId(member), kBytes));
    ReceivedPush push = s.Good(member, 1, values);
    push.reserved_bytes = kBytes;
    REQUIRE(s.shard.Accept(std::move(push)).ok());
    s.Settle();
  };
  push(2);
  CHECK_FALSE(s.shard.Reserve(MemberId(3), kBytes));
  push(1);
  CHECK(s.shard.Reserve(MemberId(3), kBytes));
}

// As many bytes as its payload had went back, though none were its own.
TEST_CASE("a push without a place gives none of its member's back", "[shard][staging]") {
  ShardFixture s(ZeroMatrix(kRows, kColumns), MakeBarrier(), MakeAdd());
  s.shard.SetPlan(PlanOfFirst(3));
  REQUIRE(s.shard.Reserve(MemberId(2), kBytes));
  REQUIRE(s.Push(1, 1, std::vector<float>(kRows * kColumns, 1)).ok());
  REQUIRE(s.Push(2, 1, std::vector<float>(kRows * kColumns, 1)).ok());
  CHECK_FALSE(s.shard.Reserve(MemberId(1), kBytes));
}

TEST_CASE("giving back what was never reserved changes nothing", "[shard][staging]") {
  ShardFixture s(ZeroMatrix(kRows, kColumns), MakeBarrier(), MakeAdd());
  s.shard.SetPlan(PlanOfFirst(3));
  s.shard.Release(MemberId(2), kBytes);
  CHECK(s.shard.Reserve(MemberId(3), kBytes));
  s.shard.Release(MemberId(3), 10 * kBytes);
  CHECK(s.shard.Reserve(MemberId(2), kBytes));
  CHECK_FALSE(s.shard.Reserve(MemberId(3), kBytes));
}

// Keeps what a correct transport keeps: who has a place, and gives it back unless Accept staged the
// push.
TEST_CASE("random pushes, failures and removals leave no place taken", "[shard][staging]") {
  const int members = 4;
  for (const bool barrier : {true, false}) {
    for (uint32_t seed = 0; seed < 40; ++seed) {
      CAPTURE(barrier, seed);
      std::mt19937 random(seed);
      ShardFixture s(ZeroMatrix(2, 3), PolicyOf(barrier), MakeAdd());
      // Accounting is by declared size, so small models can pretend to be large ones.
      const int64_t declared = int64_t{17} << 20;
      Plan plan = PlanOfFirst(members);
      s.shard.SetPlan(plan);
      std::map<uint64_t, int> places;
      std::map<uint64_t, uint64_t> pushed;
      for (int event = 0; event < 400; ++event) {
        const uint64_t member = 1 + random() % members;
        switch (random() % 6) {
          case 0:
          case 1:
            if (places[member] == 0 && s.shard.Reserve(MemberId(member), declared)) {
              ++places[member];
            }
            break;
          case 2:  // The stream broke.
            if (places[member] > 0) s.shard.Release(MemberId(member), declared), --places[member];
            break;
          case 3:
          case 4: {  // The push is complete; where Accept stages it, that gives the place back.
            if (places[member] == 0) break;
            const uint64_t exchange = pushed[member] + random() % 3;
            ReceivedPush push = s.Good(member, exchange, std::vector<float>(6, 1));
            push.reserved_bytes = declared;
            const absl::StatusOr<PushAccepted> accepted = s.shard.Accept(std::move(push));
            const bool staged = accepted.ok() && !accepted->duplicate;
            if (staged) pushed[member] = exchange;
            if (!staged) s.shard.Release(MemberId(member), declared);
            --places[member];
            break;
          }
          default:
            if (random() % 20 == 0 && plan.members.size() > 1) {
              plan.members.erase(plan.members.begin() + random() % plan.members.size());
              plan.generation = plan.generation.Next();
              s.shard.SetPlan(plan);
            }
            if (random() % 2 == 0) s.shard.Advance(s.now);
        }
        // Whoever is next in order gets a place, whatever the others hold.
        if (barrier && event % 10 == 0) {
          s.Settle();
          REQUIRE_FALSE(s.WaitsFor().empty());
          const MemberId next(s.WaitsFor().front());
          REQUIRE(s.shard.Reserve(next, declared));
          s.shard.Release(next, declared);
        }
      }
      for (const auto& [member, count] : places) {
        for (int i = 0; i < count; ++i) s.shard.Release(MemberId(member), declared);
      }
      s.shard.SetPlan(PlanOf(1000, {{50, 1000}, {51, 1000}}));
      s.Settle();
      REQUIRE(s.shard.counters().staged_bytes == 0);
      // Not a byte is taken: a push that fills the whole limit fits, for one who is not next in
      // order.
      const int64_t limit = int64_t{16} << 20;
      CHECK(s.shard.Reserve(MemberId(51), limit));
      if (barrier) CHECK_FALSE(s.shard.Reserve(MemberId(51), 1));
    }
  }
}

}  // namespace
}  // namespace tessera
