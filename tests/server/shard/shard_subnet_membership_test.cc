// Who the sites of a round are, and what becomes of a lost one's part.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/server/shard/shard_fixture.h"
#include "tests/server/shard/subnet_cluster.h"

namespace tessera {
namespace {

std::vector<uint64_t> Sites(const Plan& plan, uint64_t round) {
  std::vector<uint64_t> sites;
  for (const MemberId member : SitesOf(plan, Exchange(round))) sites.push_back(member.value());
  return sites;
}

TEST_CASE("sites are members that have begun and departed ones until the agreed round", "[plan]") {
  Plan plan;
  plan.members = {{MemberId(4), Rank(0), Exchange(1)}, {MemberId(7), Rank(1), Exchange(5)}};
  plan.departed = {{MemberId(3), Rank(1), Exchange(1), Exchange(5)},
                   {MemberId(2), Rank(3), Exchange(2), Exchange(0)}};
  CHECK(Sites(plan, 1) == std::vector<uint64_t>{4, 3});
  CHECK(Sites(plan, 2) == std::vector<uint64_t>{4, 3, 2});
  CHECK(Sites(plan, 4) == std::vector<uint64_t>{4, 3, 2});
  CHECK(Sites(plan, 5) == std::vector<uint64_t>{4, 7, 2});
  CHECK(Sites(plan, 999) == std::vector<uint64_t>{4, 7, 2});
  // Of one rank, the elder member comes first, wherever it stands.
  plan.departed[0].until = Exchange(6);
  CHECK(Sites(plan, 5) == std::vector<uint64_t>{4, 3, 7, 2});
}

float Value(uint64_t round, uint32_t site) {
  return static_cast<float>(round) + 0.1f * static_cast<float>(site + 1);
}

// Every pushed value of a round and site is Value().
struct Membership {
  SubnetCluster cluster{FullyConnected({5, 9, 6, 4}, true, false), 2};

  void Push(uint64_t member, uint64_t round, uint32_t site, uint32_t sites) {
    for (int server = 0; server < 2; ++server) {
      cluster.Push(server, member, cluster.Place(round, site, sites),
                   [&](int, int64_t, int64_t) { return Value(round, site); });
    }
    cluster.Settle();
  }
  void CloseByHand(uint64_t round, uint32_t sites, const std::vector<uint32_t>& returned) {
    cluster.ForEach([&](int p, int64_t i, int64_t j) {
      double sum = 0;
      for (const uint32_t site : returned) {
        if (cluster.IsShared(p)) {
          sum += Value(round, site);
        } else if (cluster.Has(cluster.Place(round, site, sites), p, i, j)) {
          cluster.At(p, i, j) = Value(round, site);
        }
      }
      if (cluster.IsShared(p)) {
        cluster.At(p, i, j) = static_cast<float>(sum / static_cast<double>(returned.size()));
      }
      return 0.0f;
    });
  }
  uint64_t version() { return cluster.shard(0).counters().version.value(); }
};

Plan WithDeparted(uint64_t generation, std::vector<std::pair<uint64_t, uint64_t>> members,
                  uint64_t departed, uint64_t until) {
  Plan plan = PlanOf(generation, std::move(members));
  plan.departed = {{MemberId(departed), Rank(departed), Exchange(1), Exchange(until)}};
  return plan;
}

TEST_CASE("a lost site's part stays as it was until its place is given up", "[shard][subnet]") {
  Membership m;
  m.cluster.SetPlan(PlanOfFirst(3));
  for (uint32_t site = 0; site < 3; ++site) m.Push(site + 1, 1, site, 3);
  m.CloseByHand(1, 3, {0, 1, 2});
  REQUIRE(m.cluster.IsEqual());

  // Lost in mid-round: one has pushed, one has not; the round closes with the removal.
  m.Push(1, 2, 0, 3);
  m.Push(3, 2, 2, 3);
  CHECK(m.version() == 1);
  m.cluster.SetPlan(WithDeparted(2, {{1, 1}, {3, 1}}, 2, 0));
  m.cluster.Settle();
  CHECK(m.version() == 2);
  m.CloseByHand(2, 3, {0, 2});
  REQUIRE(m.cluster.IsEqual());

  // The next round is still cut for three.
  m.Push(1, 3, 0, 3);
  m.Push(3, 3, 2, 3);
  CHECK(m.version() == 3);
  m.CloseByHand(3, 3, {0, 2});
  REQUIRE(m.cluster.IsEqual());

  // It is agreed that round 5 is cut for two.
  m.cluster.SetPlan(WithDeparted(3, {{1, 1}, {3, 1}}, 2, 5));
  m.Push(1, 4, 0, 3);
  m.Push(3, 4, 2, 3);
  m.CloseByHand(4, 3, {0, 2});
  REQUIRE(m.cluster.IsEqual());
  m.Push(1, 5, 0, 2);
  m.Push(3, 5, 1, 2);
  CHECK(m.version() == 5);
  m.CloseByHand(5, 2, {0, 1});
  REQUIRE(m.cluster.IsEqual());
}

TEST_CASE("what a lost site had pushed and was folded stays and counts", "[shard][subnet]") {
  Membership m;
  m.cluster.SetPlan(PlanOfFirst(2));
  m.Push(1, 1, 0, 2);
  m.cluster.SetPlan(WithDeparted(2, {{2, 1}}, 1, 0));
  m.cluster.Settle();
  CHECK(m.version() == 0);
  m.Push(2, 1, 1, 2);
  CHECK(m.version() == 1);
  m.CloseByHand(1, 2, {0, 1});
  CHECK(m.cluster.IsEqual());
}

TEST_CASE("a proposal holds the round before it, which is open or a later one", "[shard][subnet]") {
  Membership m;
  m.cluster.SetPlan(PlanOfFirst(2));
  Shard& shard = m.cluster.shard(0);
  // Round 1 is open: its end opens 2 and nobody waits for it.
  CHECK(shard.Propose(1, Exchange(1)) == Exchange(4));
  shard.Withdraw(1);
  CHECK(shard.Propose(2, Exchange(2)) == Exchange(4));
  shard.Withdraw(2);
  for (int server = 0; server < 2; ++server) {
    CHECK(m.cluster.shard(server).Propose(3, Exchange(3)) == Exchange(3));
  }
  for (uint32_t site = 0; site < 2; ++site) m.Push(site + 1, 1, site, 2);
  CHECK(m.version() == 1);
  CHECK(m.cluster.Fetch(0, 1, 2)->has_value());
  CHECK_FALSE(m.cluster.Fetch(0, 1, 3)->has_value());
  // Round 2 is accepted and not folded.
  m.CloseByHand(1, 2, {0, 1});
  for (uint32_t site = 0; site < 2; ++site) m.Push(site + 1, 2, site, 2);
  CHECK(m.version() == 1);
  CHECK(m.cluster.IsEqual());
  CHECK_FALSE(m.cluster.Fetch(0, 1, 3)->has_value());
  SECTION("a plan with the joiner settles it") {
    m.cluster.SetPlan(PlanOf(2, {{1, 1}, {2, 1}, {5, 3}}));
    m.cluster.Settle();
    CHECK(m.version() == 2);
    m.CloseByHand(2, 2, {0, 1});
    CHECK(m.cluster.IsEqual());
    CHECK(m.cluster.Fetch(0, 5, 3)->has_value());
    m.Push(1, 3, 0, 3);
    m.Push(2, 3, 1, 3);
    CHECK(m.version() == 2);
    m.Push(5, 3, 2, 3);
    m.CloseByHand(3, 3, {0, 1, 2});
    CHECK(m.cluster.IsEqual());
  }
  SECTION("so does a withdrawal, after a plan that ends a departed site or without one") {
    m.cluster.SetPlan(WithDeparted(2, {{1, 1}}, 2, 3));
    m.cluster.Settle();
    CHECK(m.version() == 1);
    for (int server = 0; server < 2; ++server) m.cluster.shard(server).Withdraw(3);
    m.cluster.Settle();
    CHECK(m.version() == 2);
    // Member 2's push was not folded when it was removed.
    m.CloseByHand(2, 2, {0});
    CHECK(m.cluster.IsEqual());
    m.Push(1, 3, 0, 1);
    m.CloseByHand(3, 1, {0});
    CHECK(m.cluster.IsEqual());
  }
}

TEST_CASE("a joiner fetches its first round once that opens, and none before", "[shard][subnet]") {
  Membership m;
  m.cluster.SetPlan(PlanOf(1, {{1, 1}, {2, 4}}));
  CHECK(m.cluster.Fetch(0, 2, 1).status().message() ==
        "fetch from member 2 round 1: not a site of that round, want 4 or a later one");
  for (uint64_t round = 1; round <= 3; ++round) {
    CHECK_FALSE(m.cluster.Fetch(0, 2, 4)->has_value());
    CHECK(m.cluster.Fetch(0, 2, 5).status().code() == absl::StatusCode::kFailedPrecondition);
    m.Push(1, round, 0, 1);
  }
  CHECK(m.cluster.Fetch(0, 2, 4)->has_value());
}

TEST_CASE("a job that was left by all begins again where it is joined", "[shard][subnet]") {
  Membership m;
  m.cluster.SetPlan(PlanOfFirst(1));
  m.Push(1, 1, 0, 1);
  m.cluster.SetPlan(WithDeparted(2, {}, 1, 0));
  m.cluster.Settle();
  CHECK(m.version() == 1);
  m.cluster.SetPlan(WithDeparted(3, {{2, 5}}, 1, 5));
  CHECK(m.cluster.Fetch(0, 2, 5)->has_value());
  m.Push(2, 5, 0, 1);
  CHECK(m.version() == 2);
  m.CloseByHand(5, 1, {0});
  CHECK(m.cluster.IsEqual());
}

}  // namespace
}  // namespace tessera
