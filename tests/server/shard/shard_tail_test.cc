// Jobs of subnets that end on the whole model: which exchange is of which kind.
#include <catch2/catch.hpp>
#include <string>

#include "tests/server/shard/shard_fixture.h"
#include "tests/server/shard/subnet_cluster.h"

namespace tessera {
namespace {

float Half(int, int64_t, int64_t) { return 0.5f; }

// Two members on one server.
struct Tail {
  SubnetCluster cluster{FullyConnected({5, 9, 6, 4}, true, true), 1, 5, std::nullopt, true};
  Shard& shard = cluster.shard(0);

  Tail() { cluster.SetPlan(PlanOfFirst(2)); }

  absl::Status Subnet(uint64_t member, uint64_t round, bool whole_next) {
    ReceivedPush push = cluster.Good(0, member, cluster.Place(round, member - 1, 2), Half);
    push.whole_next = whole_next;
    return shard.Accept(std::move(push)).status();
  }
  absl::Status Whole(uint64_t member, uint64_t exchange) {
    return shard.Accept(cluster.GoodWhole(0, member, exchange, Half)).status();
  }
  // A fetch of `round` by this member: "waits", "subnet", "whole" or an error.
  std::string Fetch(uint64_t member, uint64_t round) {
    const auto read = shard.Read(MemberId(member), Exchange(round - 1), SubnetPlace());
    if (!read.ok()) return std::string(read.status().message());
    if (!read->has_value()) return "waits";
    return (*read)->entries == nullptr ? "whole" : "subnet";
  }
  uint64_t version() { return shard.counters().version.value(); }
};

TEST_CASE("members that say so change to the whole model, and the mean of their changes is added",
          "[shard][subnet][tail]") {
  Tail t;
  const int64_t before = t.shard.memory_bytes();
  REQUIRE(t.Subnet(1, 1, true).ok());
  REQUIRE(t.Subnet(2, 1, true).ok());
  t.cluster.Settle();
  CHECK(t.version() == 1);
  const std::vector<float> start = ValuesOf(*t.shard.ReadNow().snapshot);
  const auto entries = [](float x) { return [x](int, int64_t, int64_t) { return x; }; };
  REQUIRE(t.shard.Accept(t.cluster.GoodWhole(0, 2, 2, entries(0.25f))).ok());
  t.cluster.Settle();
  CHECK(ValuesOf(*t.shard.ReadNow().snapshot) == start);
  REQUIRE(t.shard.Accept(t.cluster.GoodWhole(0, 1, 2, entries(0.75f))).ok());
  t.cluster.Settle();
  CHECK(t.version() == 2);
  std::vector<float> want = start;
  for (float& x : want) x += 0.5f;
  CHECK(ValuesOf(*t.shard.ReadNow().snapshot) == want);
  CHECK(t.shard.memory_bytes() == before);
  CHECK(before > 2 * t.shard.slices().bytes());
}

TEST_CASE("one that fetches a subnet is told once exchanges are of the whole model",
          "[shard][subnet][tail]") {
  Tail t;
  t.cluster.SetPlan(PlanOf(2, {{1, 1}, {2, 1}, {3, 3}}));
  CHECK(t.Fetch(1, 1) == "subnet");
  REQUIRE(t.Subnet(1, 1, true).ok());
  REQUIRE(t.Subnet(2, 1, true).ok());
  CHECK(t.Fetch(3, 3) == "waits");
  t.cluster.Settle();
  CHECK(t.Fetch(1, 2) == "whole");
  CHECK(t.Fetch(3, 3) == "waits");
  REQUIRE(t.Whole(1, 2).ok());
  REQUIRE(t.Whole(2, 2).ok());
  t.cluster.Settle();
  CHECK(t.Fetch(3, 3) == "whole");
  for (const uint64_t member : {1, 2}) REQUIRE(t.Whole(member, 3).ok());
  t.cluster.Settle();
  CHECK(t.version() == 2);
  REQUIRE(t.Whole(3, 3).ok());
  t.cluster.Settle();
  CHECK(t.version() == 3);
}

TEST_CASE("pushes of one exchange are of one kind, and messages have both",
          "[shard][subnet][tail]") {
  Tail t;
  SECTION("a subnet comes first") {
    REQUIRE(t.Subnet(1, 1, false).ok());
    CHECK(
        t.Whole(2, 1).message() ==
        "push from member 2 exchange 1: keys are dense, want a subnet's as the other pushes have");
    CHECK(
        t.Subnet(2, 1, true).message() ==
        "push from member 2 exchange 1: keys of its next push are to be dense, want a subnet's as "
        "the other pushes of exchange 1 say");
    REQUIRE(t.Subnet(2, 1, false).ok());
    t.cluster.Settle();
    CHECK(t.Fetch(1, 2) == "subnet");
  }
  SECTION("one that changes comes first") {
    REQUIRE(t.Subnet(1, 1, true).ok());
    CHECK(
        t.Subnet(2, 1, false).message() ==
        "push from member 2 exchange 1: keys of its next push are to be a subnet's, want dense as "
        "the other pushes of exchange 1 say");
    REQUIRE(t.Subnet(2, 1, true).ok());
    t.cluster.Settle();
    CHECK(t.Subnet(1, 2, false).message() ==
          "push from member 1 exchange 2: keys are a subnet's, want dense as the other pushes have "
          "since exchange 2");
    REQUIRE(t.Whole(1, 2).ok());
  }
  SECTION("all entries come first") {
    REQUIRE(t.Whole(1, 1).ok());
    CHECK(t.Subnet(2, 1, true).message() ==
          "push from member 2 exchange 1: keys are a subnet's, want dense as the other pushes have "
          "since exchange 1");
    REQUIRE(t.Whole(2, 1).ok());
    t.cluster.Settle();
    CHECK(t.version() == 1);
  }
  CHECK(t.shard.counters().refused > 0);
}

TEST_CASE("a server whose members died before it heard of the change takes what comes",
          "[shard][subnet][tail]") {
  Tail t;
  REQUIRE(t.Subnet(1, 1, false).ok());
  REQUIRE(t.Subnet(2, 1, false).ok());
  t.cluster.Settle();
  // Both have pushed exchange 2 elsewhere and are gone; the next one was told of the tail there.
  Plan plan = PlanOf(2, {{3, 5}});
  plan.departed = {{MemberId(1), Rank(0), Exchange(1), Exchange(5)},
                   {MemberId(2), Rank(1), Exchange(1), Exchange(5)}};
  t.cluster.SetPlan(plan);
  CHECK(t.Fetch(3, 5) == "subnet");
  REQUIRE(t.shard.Read(MemberId(3), Exchange(4))->has_value());
  REQUIRE(t.Whole(3, 5).ok());
  t.cluster.Settle();
  CHECK(t.version() == 2);
  CHECK(t.Fetch(3, 6) == "whole");
}

TEST_CASE("an exchange of the whole model closes when the last one that is awaited goes",
          "[shard][subnet][tail]") {
  Tail t;
  REQUIRE(t.Whole(1, 1).ok());
  t.cluster.Settle();
  CHECK(t.version() == 0);
  Plan plan = PlanOf(2, {{1, 1}});
  plan.departed = {{MemberId(2), Rank(1), Exchange(1), Exchange(0)}};
  t.cluster.SetPlan(plan);
  const std::vector<float> start = ValuesOf(*t.shard.ReadNow().snapshot);
  t.cluster.Settle();
  CHECK(t.version() == 1);
  std::vector<float> want = start;
  for (float& x : want) x += 0.5f;
  CHECK(ValuesOf(*t.shard.ReadNow().snapshot) == want);
}

TEST_CASE("a push of all entries has their size and kind", "[shard][subnet][tail]") {
  Tail t;
  ReceivedPush push = t.cluster.GoodWhole(0, 1, 1, Half);
  push.kind = 2;
  CHECK(t.shard.Accept(std::move(push)).status().message() ==
        "push from member 1 exchange 1: payload kind is 2, want 1; the job's methods differ");
  push = t.cluster.Good(0, 1, t.cluster.Place(1, 0, 2), Half);
  push.kind = 1;
  CHECK(t.shard.Accept(std::move(push)).status().message() ==
        "push from member 1 exchange 1: payload kind is 1, want 2; the job's methods differ");
  push = t.cluster.Good(0, 1, t.cluster.Place(1, 0, 2), Half);
  push.kind = 1;
  push.keys = AllEntries();
  CHECK(t.shard.Accept(std::move(push)).status().code() == absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tessera
