// What a shard accepts, and that what it refuses leaves it as it was.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "common/checkpoint/manifest.h"
#include "common/consistency/barrier.h"
#include "common/consistency/none.h"
#include "common/rule/add.h"
#include "tests/server/shard/shard_fixture.h"

namespace tessera {
namespace {

using Values = std::vector<float>;

struct AsyncShard : ShardFixture {
  AsyncShard() : ShardFixture(ZeroMatrix(2, 2), MakeNone(1.0f), MakeAdd()) {
    shard.SetPlan(PlanOfFirst(2));
  }
};

struct BarrierShard : ShardFixture {
  BarrierShard() : ShardFixture(ZeroMatrix(2, 2), MakeBarrier(), MakeAdd()) {
    shard.SetPlan(PlanOfFirst(2));
  }
};

// Sends a spoiled push and holds the shard to its word: exact code, the words, and nothing changed.
void Refuse(ShardFixture& fixture, ReceivedPush push, absl::StatusCode code,
            const std::string& words) {
  const uint64_t hash = fixture.shard.ParametersHash();
  const ShardCounters before = fixture.shard.counters();
  const absl::Status status = fixture.shard.Accept(std::move(push)).status();
  INFO(status.message());
  CHECK(status.code() == code);
  CHECK(std::string(status.message()).find(words) != std::string::npos);
  CHECK(fixture.Settle() == 0);
  const ShardCounters after = fixture.shard.counters();
  CHECK(fixture.shard.ParametersHash() == hash);
  CHECK(after.version == before.version);
  CHECK(after.staged_bytes == before.staged_bytes);
  CHECK(after.pushes == before.pushes);
  CHECK(after.refused == before.refused + 1);
}

TEST_CASE("asynchronous pushes are added one by one", "[shard]") {
  AsyncShard s;
  REQUIRE(s.Push(1, 1, {1, 2, 3, 4}).ok());
  REQUIRE(s.Push(2, 1, {10, 20, 30, 40}).ok());
  REQUIRE(s.Push(1, 2, {100, 0, 0, 0}).ok());
  CHECK(s.Values() == Values{111, 22, 33, 44});
  CHECK(s.version() == 3);
}

TEST_CASE("a barrier adds the mean once all have pushed", "[shard]") {
  BarrierShard s;
  REQUIRE(s.Push(2, 1, {2, 4, 6, 8}).ok());
  CHECK(s.Values() == Values{0, 0, 0, 0});
  CHECK(s.WaitsFor() == std::vector<uint64_t>{1});
  REQUIRE(s.Push(1, 1, {4, 4, 4, 4}).ok());
  CHECK(s.Values() == Values{3, 4, 5, 6});
  CHECK(s.version() == 1);
}

TEST_CASE("an accepted push is not yet folded", "[shard]") {
  AsyncShard s;
  REQUIRE(s.Send(1, 1, {1, 1, 1, 1}).ok());
  CHECK(s.version() == 0);
  CHECK(s.shard.counters().staged_bytes == 16);
  CHECK_FALSE(s.Read(1, 1)->has_value());
  CHECK(s.Settle() == 1);
  CHECK(s.shard.counters().staged_bytes == 0);
  CHECK(**s.Read(1, 1) == Values{1, 1, 1, 1});
}

TEST_CASE("a repeated push is acknowledged and not applied, staged or folded", "[shard]") {
  AsyncShard s;
  REQUIRE(s.Send(1, 1, {1, 1, 1, 1}).ok());
  CHECK(s.Send(1, 1, {1, 1, 1, 1})->duplicate);
  s.Settle();
  CHECK(s.Push(1, 1, {1, 1, 1, 1})->duplicate);
  REQUIRE(s.Push(1, 2, {1, 1, 1, 1}).ok());
  CHECK(s.Push(1, 1, {7, 7, 7, 7})->duplicate);
  CHECK(s.Values() == Values{2, 2, 2, 2});
  CHECK(s.shard.counters().duplicates == 3);
  CHECK(s.shard.counters().pushes == 2);
  CHECK(s.version() == 2);
}

TEST_CASE("a repeated push under a barrier does not count for the missing member", "[shard]") {
  BarrierShard s;
  s.MustPush(1, 1, {1, 1, 1, 1});
  CHECK(s.Push(1, 1, {1, 1, 1, 1})->duplicate);
  CHECK(s.version() == 0);
  CHECK(s.WaitsFor() == std::vector<uint64_t>{2});
}

TEST_CASE("a push of the wrong size is refused with both sizes", "[shard]") {
  AsyncShard s;
  Refuse(s, s.Good(1, 1, {1, 2, 3}), absl::StatusCode::kInvalidArgument,
         "push from member 1 exchange 1: payload is 12 bytes, want 16 (4 entries as f32)");
  Refuse(s, s.Good(1, 1, {1, 2, 3, 4, 5}), absl::StatusCode::kInvalidArgument,
         "payload is 20 bytes, want 16");
  Refuse(s, s.Good(1, 1, {}), absl::StatusCode::kInvalidArgument, "payload is 0 bytes, want 16");
  CHECK(s.Push(1, 1, {1, 2, 3, 4}).ok());
}

TEST_CASE("a push whose base is ahead is refused", "[shard]") {
  AsyncShard s;
  s.MustPush(2, 1, {1, 1, 1, 1});
  ReceivedPush push = s.Good(1, 1, {1, 1, 1, 1});
  push.base = Version(2);
  Refuse(s, std::move(push), absl::StatusCode::kInvalidArgument,
         "base version is 2, ahead of the shard's 1");
}

TEST_CASE("a value that is not finite is refused by name, row and column", "[shard]") {
  AsyncShard s;
  Refuse(s, s.Good(1, 1, {1, 2, 3, std::nanf("")}), absl::StatusCode::kInvalidArgument,
         "w[1, 1] is not finite");
  Refuse(s, s.Good(1, 1, {INFINITY, 2, 3, 4}), absl::StatusCode::kInvalidArgument,
         "w[0, 0] is not finite");
  CHECK(s.shard.counters().refused_non_finite == 2);
}

TEST_CASE("another layout or payload kind is refused", "[shard]") {
  AsyncShard s;
  ReceivedPush push = s.Good(1, 1, {1, 2, 3, 4});
  push.layout_hash ^= 1;
  Refuse(s, std::move(push), absl::StatusCode::kInvalidArgument, "layout_hash is");
  push = s.Good(1, 1, {1, 2, 3, 4});
  push.kind = 2;
  Refuse(s, std::move(push), absl::StatusCode::kInvalidArgument, "payload kind is 2, want 0");
}

TEST_CASE("a stranger is refused, also as nobody and before any plan", "[shard]") {
  AsyncShard s;
  Refuse(s, s.Good(3, 1, {1, 2, 3, 4}), absl::StatusCode::kFailedPrecondition,
         "not a member of the current plan (generation 1)");
  Refuse(s, s.Good(0, 1, {1, 2, 3, 4}), absl::StatusCode::kFailedPrecondition, "not a member");
  ShardFixture fresh(ZeroMatrix(2, 2), MakeNone(1.0f), MakeAdd());
  Refuse(fresh, fresh.Good(1, 1, {1, 2, 3, 4}), absl::StatusCode::kFailedPrecondition,
         "(generation 0)");
  CHECK(fresh.Read(1, 0).status().code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("an exchange that skips one is refused", "[shard]") {
  AsyncShard s;
  s.MustPush(1, 1, {1, 1, 1, 1});
  Refuse(s, s.Good(1, 3, {1, 1, 1, 1}), absl::StatusCode::kFailedPrecondition,
         "want exchange 2 next");
  Refuse(s, s.Good(2, 2, {1, 1, 1, 1}), absl::StatusCode::kFailedPrecondition,
         "want exchange 1 next");
  Refuse(s, s.Good(2, UINT64_MAX, {1, 1, 1, 1}), absl::StatusCode::kFailedPrecondition,
         "want exchange 1 next");
}

TEST_CASE("a push that runs ahead of the barrier is refused", "[shard]") {
  BarrierShard s;
  s.MustPush(1, 1, {1, 1, 1, 1});
  Refuse(s, s.Good(1, 2, {1, 1, 1, 1}), absl::StatusCode::kFailedPrecondition,
         "exchange 1 is still being collected; pull before pushing");
}

TEST_CASE("exchange 0 counts as seen", "[shard]") {
  AsyncShard s;
  CHECK(s.Push(1, 0, {1, 1, 1, 1})->duplicate);
  CHECK(s.version() == 0);
}

TEST_CASE("staleness is the versions between base and fold", "[shard]") {
  AsyncShard s;
  ReceivedPush late = s.Good(1, 1, {1, 1, 1, 1});  // Base 0, sent last.
  s.MustPush(2, 1, {1, 1, 1, 1});
  s.MustPush(2, 2, {1, 1, 1, 1});
  REQUIRE(s.shard.Accept(std::move(late)).ok());
  s.Settle();
  const ShardCounters counters = s.shard.counters();
  CHECK(counters.staleness[0] == 2);
  CHECK(counters.staleness[2] == 1);
  CHECK(counters.staleness_sum == 2);
  CHECK(counters.staleness_max == 2);
  for (int i = 3; i < 100; ++i) s.MustPush(2, i, {0, 0, 0, 0});
  ReceivedPush stale = s.Good(1, 2, {1, 1, 1, 1});
  stale.base = Version(0);
  REQUIRE(s.shard.Accept(std::move(stale)).ok());
  s.Settle();
  CHECK(s.shard.counters().staleness.back() == 1);
  CHECK(s.shard.counters().staleness_max == 100);
}

TEST_CASE("an empty shard takes part in every exchange", "[shard]") {
  ShardFixture s(ZeroMatrix(2, 2), MakeBarrier(), MakeAdd(), /*shard=*/0, /*shard_count=*/5);
  REQUIRE(s.shard.slices().size == 0);
  s.shard.SetPlan(PlanOfFirst(2));
  CHECK(s.Push(1, 1, {}).ok());
  CHECK(s.Push(2, 1, {}).ok());
  CHECK((*s.Read(1, 1))->empty());
  CHECK(s.version() == 1);
  CHECK(s.Push(1, 2, {1}).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("a push of more rows than there can be is refused", "[shard]") {
  AsyncShard s;
  ReceivedPush push = s.Good(1, 1, {1, 1, 1, 1});
  push.examples = kPushExamplesMax + 1;
  Refuse(s, std::move(push), absl::StatusCode::kInvalidArgument,
         "examples are 1099511627777, want at most 1099511627776");
  push = s.Good(1, 1, {1, 1, 1, 1});
  push.examples = kPushExamplesMax;
  CHECK(s.shard.Accept(std::move(push)).ok());
}

TEST_CASE("rows never add up to more than a checkpoint can be read with", "[shard]") {
  AsyncShard s;
  SavedShard saved;
  saved.counters.examples = kSavedCountEnd - kPushExamplesMax;
  saved.counters.staleness_sum = kSavedCountEnd - 1;
  saved.read_rows = [](int, int, int64_t rows_begin, int64_t rows_end, float* out) {
    std::fill_n(out, (rows_end - rows_begin) * 2, 0.0f);
    return absl::OkStatus();
  };
  REQUIRE(s.shard.Load(saved).ok());
  s.shard.SetPlan(PlanOfFirst(2));
  for (const uint64_t member : {1, 2}) {
    ReceivedPush push = s.Good(member, 1, {1, 1, 1, 1});
    push.examples = kPushExamplesMax;
    push.base = Version(0);
    REQUIRE(s.shard.Accept(std::move(push)).ok());
    s.Settle();
  }
  CHECK(s.shard.counters().examples == kSavedCountEnd - 1);
  CHECK(s.shard.counters().staleness_sum == kSavedCountEnd - 1);
  CHECK(s.version() == 2);
}

}  // namespace
}  // namespace tessera
