// Room for pushes that are on their way: nobody starves, nothing leaks.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "common/consistency/barrier.h"
#include "common/consistency/none.h"
#include "common/rule/add.h"
#include "server/shard/block_store.h"
#include "server/shard/served_shard.h"
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

TEST_CASE("under a barrier another push comes beside the next one, whichever asks first",
          "[shard][staging]") {
  ShardFixture s(ZeroMatrix(kRows, kColumns), MakeBarrier(), MakeAdd());
  s.shard.SetPlan(PlanOfFirst(4));
  CHECK(s.shard.Reserve(MemberId(1), kBytes));
  CHECK(s.shard.Reserve(MemberId(3), kBytes));
  CHECK_FALSE(s.shard.Reserve(MemberId(2), kBytes));
  CHECK_FALSE(s.shard.Reserve(MemberId(4), kBytes));
}

TEST_CASE("a push of the next in order that is not folded yet takes none of the others' room",
          "[shard][staging]") {
  ShardFixture s(ZeroMatrix(kRows, kColumns), MakeBarrier(), MakeAdd());
  s.shard.SetPlan(PlanOfFirst(3));
  // Somebody may come: nothing of the second exchange is folded.
  REQUIRE(s.shard.Propose(1, Exchange(2)) == Exchange(2));
  const std::vector<float> values(kRows * kColumns, 1);
  for (const uint64_t member : {1, 2, 3}) s.MustPush(member, 1, values);
  s.MustPush(1, 2, values);
  REQUIRE(s.shard.counters().staged_bytes == kBytes);
  CHECK(s.shard.Reserve(MemberId(2), kBytes));
  CHECK_FALSE(s.shard.Reserve(MemberId(3), kBytes));
}

// As a service uses it, with limits of its own.
class Served {
 public:
  Served(int members, int64_t staging_bytes) : shard(MakeShard(staging_bytes)) {
    shard.SetPlan(PlanOfFirst(members));
  }

  static constexpr int64_t kPushBytes = 6 * 4;

  void Reserve(uint64_t member) {
    shard.Reserve(MemberId(member), kPushBytes, [this, member](const absl::Status& status) {
      REQUIRE(status.ok());
      granted[member] = true;
    });
    Settle();
  }
  void Release(uint64_t member) {
    granted[member] = false;
    shard.shard().Release(MemberId(member), kPushBytes);
    Settle();
  }
  void Push(uint64_t member, uint64_t exchange) {
    ReceivedPush push;
    push.member = MemberId(member);
    push.exchange = Exchange(exchange);
    push.layout_hash = shard.shard().layout_hash();
    push.payload = PayloadOf(std::vector<float>(6, 1));
    push.reserved_bytes = kPushBytes;
    shard.Accept(std::move(push), [](const absl::StatusOr<PushAccepted>& accepted) {
      REQUIRE(accepted.ok());
      REQUIRE_FALSE(accepted->duplicate);
    });
    granted[member] = false;
    Settle();
  }
  // What takes memory: pushes on their way, and those that wait for their turn.
  int64_t held_bytes() const {
    int64_t bytes = shard.shard().counters().staged_bytes;
    for (const auto& [member, has_place] : granted) bytes += has_place ? kPushBytes : 0;
    return bytes;
  }

  ServedShard shard;
  std::map<uint64_t, bool> granted;

 private:
  static std::unique_ptr<Shard> MakeShard(int64_t staging_bytes) {
    Shard::Options options;
    options.shape = ZeroMatrix(2, 3);
    options.policy = MakeBarrier();
    options.rule = MakeAdd();
    options.limits = ShardLimits{staging_bytes, kBlockBytes, false};
    return std::make_unique<Shard>(std::move(options));
  }
  void Settle() {
    bool had_events = true;
    while (shard.Work(had_events, absl::UnixEpoch())) had_events = false;
  }
};

TEST_CASE("the place beside the next in order goes to the one whose turn comes first",
          "[shard][staging]") {
  Served s(5, Served::kPushBytes);
  s.Reserve(2);
  REQUIRE(s.granted[2]);
  for (const uint64_t member : {5, 4, 3}) s.Reserve(member);
  s.Reserve(1);
  REQUIRE(s.granted[1]);
  s.Push(1, 1);
  CHECK(s.granted[3]);
  CHECK_FALSE(s.granted[4]);
  // Its turn has been, and comes again after all others'.
  s.Reserve(1);
  s.Push(2, 1);
  CHECK(s.granted[4]);
  CHECK_FALSE(s.granted[5]);
  s.Push(3, 1);
  CHECK(s.granted[5]);
  CHECK_FALSE(s.granted[1]);
}

TEST_CASE("in any order pushes hold no more than the budget, and all of them are folded",
          "[shard][staging]") {
  const int members = 5;
  const uint64_t exchanges = 6;
  const int places = GENERATE(0, 1, 2, 3);
  CAPTURE(places);
  int64_t most = 0;
  for (uint32_t seed = 0; seed < 50; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    Served s(members, places * Served::kPushBytes);
    std::map<uint64_t, uint64_t> pushed;
    std::map<uint64_t, bool> asked;
    int events = 0;
    for (; s.shard.shard().counters().collecting <= Exchange(exchanges); ++events) {
      REQUIRE(events < 20000);
      const uint64_t member = 1 + random() % members;
      const bool may_push = s.shard.shard().counters().collecting > Exchange(pushed[member]);
      if (s.granted[member]) {
        asked[member] = false;
        // Now and then the stream breaks, and the push comes again.
        if (random() % 8 == 0) {
          s.Release(member);
        } else {
          s.Push(member, ++pushed[member]);
        }
      } else if (may_push && !asked[member]) {
        asked[member] = true;
        s.Reserve(member);
      }
      most = std::max(most, s.held_bytes());
      REQUIRE(s.held_bytes() <= (places + 1) * Served::kPushBytes);
    }
  }
  // And what there is for them is used.
  CHECK(most == (places + 1) * Served::kPushBytes);
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
