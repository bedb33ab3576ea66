// What a checkpoint gets of a shard, and what a shard makes of it.
#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <vector>

#include "common/consistency/barrier.h"
#include "common/consistency/none.h"
#include "common/consistency/softsync.h"
#include "common/consistency/staleness_weight.h"
#include "common/rule/sgd.h"
#include "server/shard/log/shard_follower.h"
#include "tests/server/shard/shard_fixture.h"

namespace tessera {
namespace {

using Values = std::vector<float>;

CopyOrder OrderOf(uint64_t number, uint64_t after) { return {{number, 7}, Exchange(after)}; }

std::unique_ptr<UpdateRule> Momentum() { return MakeSgd({0.1f, 0.9f, 0.0f}); }

TEST_CASE("a copy has its exchange's commit, and stays as it is", "[shard][copies]") {
  ShardFixture s(ZeroMatrix(3, 2), MakeBarrier(), Momentum());
  s.shard.SetPlan(PlanOfFirst(2));
  REQUIRE(s.shard.Order(OrderOf(1, 2)).ok());
  Values after_two;
  for (uint64_t exchange = 1; exchange <= 2; ++exchange) {
    CHECK_FALSE(s.shard.TakeCopy().has_value());
    s.MustPush(1, exchange, Values(6, 1.5f));
    CHECK_FALSE(s.shard.TakeCopy().has_value());
    s.MustPush(2, exchange, Values(6, 2.5f));
  }
  after_two = s.Values();
  const std::optional<ShardCopy> copy = s.shard.TakeCopy();
  REQUIRE(copy.has_value());
  CHECK_FALSE(s.shard.TakeCopy().has_value());
  const Values momentum = *copy->states.at(0);
  s.MustPush(1, 3, Values(6, 100.0f));
  s.MustPush(2, 3, Values(6, 100.0f));
  CHECK(s.Values() != after_two);
  CHECK(ValuesOf(*copy->values.snapshot) == after_two);
  CHECK(*copy->states.at(0) == momentum);
  CHECK(copy->counters.version == Version(2));
  CHECK(copy->folded == std::vector<std::pair<MemberId, Exchange>>{{MemberId(1), Exchange(2)},
                                                                   {MemberId(2), Exchange(2)}});
}

TEST_CASE("a state's copy that is still held is not written again", "[shard][copies]") {
  ShardFixture s(ZeroMatrix(3, 2), MakeBarrier(), Momentum());
  s.shard.SetPlan(PlanOfFirst(1));
  REQUIRE(s.shard.Order(OrderOf(1, 1)).ok());
  s.MustPush(1, 1, Values(6, 1.0f));
  const std::optional<ShardCopy> first = s.shard.TakeCopy();
  const Values before = *first->states.at(0);
  REQUIRE(s.shard.Order(OrderOf(2, 2)).ok());
  s.MustPush(1, 2, Values(6, 1.0f));
  const std::optional<ShardCopy> second = s.shard.TakeCopy();
  CHECK(*first->states.at(0) == before);
  CHECK(*second->states.at(0) != before);
}

TEST_CASE("only those who read after the copy's exchange are told of it", "[shard][copies]") {
  ShardFixture s(ZeroMatrix(2, 2), MakeBarrier(), Momentum());
  s.shard.SetPlan(PlanOfFirst(1));
  REQUIRE(s.shard.Order(OrderOf(5, 2)).ok());
  const auto told = [&](uint64_t after) {
    const auto read = s.shard.Read(MemberId(1), Exchange(after));
    REQUIRE(read.ok());
    REQUIRE(read->has_value());
    return (*read)->checkpoint.number;
  };
  for (uint64_t exchange = 1; exchange <= 3; ++exchange) {
    s.MustPush(1, exchange, Values(4, 1.0f));
    (void)s.shard.TakeCopy();
    CHECK(told(exchange) == (exchange == 2 ? 5 : 0));
  }
}

TEST_CASE("an order that is not due yet gives way to another, and an old one comes to nothing",
          "[shard][copies]") {
  ShardFixture s(ZeroMatrix(2, 2), MakeBarrier(), Momentum());
  s.shard.SetPlan(PlanOfFirst(1));
  REQUIRE(s.shard.Order(OrderOf(1, 9)).ok());
  REQUIRE(s.shard.Order(OrderOf(2, 1)).ok());
  s.MustPush(1, 1, Values(4, 1.0f));
  CHECK(s.shard.TakeCopy()->order.mark.number == 2);
  REQUIRE(s.shard.Order(OrderOf(2, 1)).ok());
  CHECK_FALSE(s.shard.TakeCopy().has_value());
}

TEST_CASE("a copy for now waits until no update is half collected", "[shard][copies]") {
  ShardFixture s(ZeroMatrix(2, 2), MakeSoftsync(2, StalenessWeight()), Momentum());
  s.shard.SetPlan(PlanOfFirst(2));
  s.MustPush(1, 1, Values(4, 1.0f));
  REQUIRE(s.shard.Order(OrderOf(1, 0)).ok());
  CHECK_FALSE(s.shard.TakeCopy().has_value());
  s.MustPush(2, 1, Values(4, 1.0f));
  CHECK(s.shard.TakeCopy().has_value());
}

TEST_CASE("a copy at once has what is committed, whatever is half collected", "[shard][copies]") {
  ShardFixture s(ZeroMatrix(2, 2), MakeSoftsync(2, StalenessWeight()), Momentum());
  s.shard.SetPlan(PlanOfFirst(2));
  s.MustPush(1, 1, Values(4, 1.0f));
  REQUIRE(s.shard.Order({{1, 7}, kCopyAtOnce}).ok());
  const auto copy = s.shard.TakeCopy();
  REQUIRE(copy.has_value());
  CHECK(copy->values.version == Version(0));
  CHECK(ValuesOf(*copy->values.snapshot) == Values(4, 0.0f));
}

TEST_CASE("a copy that the leader before had made is refused, and the next one is made",
          "[shard][copies]") {
  ShardFixture s(ZeroMatrix(2, 2), MakeNone(1), Momentum());
  REQUIRE(ShardFollower(&s.shard).Apply(CopiedEvent{{{3, 7}, Exchange(0)}}).ok());
  CHECK(absl::IsAborted(s.shard.Order(OrderOf(3, 0))));
  CHECK(s.shard.Order(OrderOf(2, 0)).ok());
  CHECK_FALSE(s.shard.TakeCopy().has_value());
  REQUIRE(s.shard.Order(OrderOf(4, 0)).ok());
  CHECK(s.shard.TakeCopy()->order.mark.number == 4);
  // Asked again while it is being written, as over a new connection.
  CHECK(s.shard.Order(OrderOf(4, 0)).ok());
  CHECK_FALSE(s.shard.TakeCopy().has_value());
}

// Serves rows of a copy of a matrix of two columns that one shard had.
SavedShard SavedOf(const ShardCopy& copy) {
  SavedShard saved;
  const Values values = ValuesOf(*copy.values.snapshot);
  saved.read_rows = [values, states = copy.states](int, int state, int64_t begin, int64_t end,
                                                   float* out) {
    const float* from = state < 0 ? values.data() : states[state]->data();
    std::memcpy(out, from + begin * 2, (end - begin) * 2 * sizeof(float));
    return absl::OkStatus();
  };
  saved.counters.version = copy.counters.version;
  saved.counters.examples = copy.counters.examples;
  return saved;
}

TEST_CASE("shards that begin from a copy go on as the first one does, however many they are",
          "[shard][copies]") {
  ShardFixture s(ZeroMatrix(5, 2), MakeBarrier(), Momentum());
  s.shard.SetPlan(PlanOfFirst(1));
  REQUIRE(s.shard.Order(OrderOf(1, 2)).ok());
  for (uint64_t exchange = 1; exchange <= 2; ++exchange) {
    s.MustPush(1, exchange, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  }
  const SavedShard saved = SavedOf(*s.shard.TakeCopy());
  const Values next = {9, 8, 7, 6, 5, 4, 3, 2, 1, 0};
  s.MustPush(1, 3, next);
  for (const int count : {1, 2, 3}) {
    CAPTURE(count);
    Values joined;
    for (int shard = 0; shard < count; ++shard) {
      ShardFixture part(ZeroMatrix(5, 2), MakeBarrier(), Momentum(), shard, count);
      REQUIRE(part.shard.Load(saved).ok());
      CHECK(part.version() == 2);
      part.shard.SetPlan(PlanOf(9, {{8, 3}}));
      // Nobody can repeat what is in it.
      CHECK_FALSE(part.Send(1, 2, Values(part.shard.slices().size, 1.0f)).ok());
      const int64_t begin = 5 * shard / count * 2;
      part.MustPush(8, 3,
                    Values(next.begin() + begin, next.begin() + begin + part.shard.slices().size));
      const Values own = part.Values();
      joined.insert(joined.end(), own.begin(), own.end());
    }
    CHECK(joined == s.Values());
  }
}

}  // namespace
}  // namespace tessera
