// Rounds that are cut into parts of different sizes.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "tests/server/shard/shard_fixture.h"
#include "tests/server/shard/subnet_cluster.h"

namespace tessera {
namespace {

using Shares = std::vector<uint32_t>;

Shares At(const Plan& plan, uint64_t round) {
  return SharesOf(plan, Exchange(round), SitesOf(plan, Exchange(round)));
}

TEST_CASE("shares hold from their round on, and who has none counts as the mean", "[plan]") {
  Plan plan = PlanOf(1, {{1, 1}, {2, 1}, {3, 7}});
  CHECK(At(plan, 1) == Shares{1, 1});
  plan.shares = {{Exchange(4), {{MemberId(1), 30}, {MemberId(2), 11}}},
                 {Exchange(9), {{MemberId(2), 5}, {MemberId(1), 6}, {MemberId(3), 7}}}};
  CHECK(At(plan, 3) == Shares{1, 1});
  CHECK(At(plan, 4) == Shares{30, 11});
  CHECK(At(plan, 7) == Shares{30, 11, 21});
  CHECK(At(plan, 8) == Shares{30, 11, 21});
  CHECK(At(plan, 9) == Shares{6, 5, 7});
  CHECK(At(plan, 1000) == Shares{6, 5, 7});
  // One that has left and is a site no longer counts for nothing.
  plan = PlanOf(2, {{1, 1}, {3, 7}});
  plan.shares = {{Exchange(4), {{MemberId(1), 30}, {MemberId(2), 11}}}};
  CHECK(At(plan, 7) == Shares{1, 1});
  plan.departed = {{MemberId(2), Rank(1), Exchange(1), Exchange(0)}};
  CHECK(At(plan, 7) == Shares{30, 11, 21});
  // Equal ones have one form, and so have none.
  plan.shares = {{Exchange(1), {{MemberId(1), 9}, {MemberId(2), 9}}}};
  CHECK(At(plan, 7) == Shares{1, 1, 1});
  plan.shares = {{Exchange(1), {{MemberId(8), 9}}}};
  CHECK(At(plan, 7) == Shares{1, 1, 1});
  CHECK(At(PlanOf(3, {}), 7).empty());
}

// Members that come, go and are given parts at rounds that all shards have promised; each shard hears
// of it when it does.
class Job {
 public:
  explicit Job(int seed) : random_(seed) {
    plan_ = PlanOfFirst(3);
    cluster.SetPlan(plan_);
    next_member_ = 4;
  }

  uint64_t Draw(uint64_t end) { return random_() % end; }

  // Something is proposed, which holds from the round after next on.
  void Propose() {
    const uint64_t number = ++proposal_;
    begin_ = round + 2;
    for (int s = 0; s < cluster.servers(); ++s) {
      REQUIRE(cluster.shard(s).Propose(number, Exchange(begin_)) == Exchange(begin_));
    }
    open_ = true;
  }
  // All have answered: the plan that comes of it, which shards get one by one.
  void Settle() {
    for (DepartedSite& departed : plan_.departed) {
      if (departed.until == Exchange(0)) departed.until = Exchange(begin_);
    }
    if (Draw(2) == 0 && plan_.members.size() < 5) {
      plan_.members.push_back({MemberId(next_member_), Rank(next_member_), Exchange(begin_)});
      ++next_member_;
    }
    if (Draw(3) > 0) {
      PartShares shares;
      shares.first = Exchange(begin_);
      for (const PlanMember& m : plan_.members) {
        if (Draw(4) > 0) shares.of.push_back({m.member, static_cast<uint32_t>(1 + Draw(5))});
      }
      plan_.shares.push_back(shares);
    }
    open_ = false;
    Send(proposal_);
  }
  // At once.
  void Lose(size_t which) {
    const PlanMember gone = plan_.members[which];
    plan_.members.erase(plan_.members.begin() + static_cast<int64_t>(which));
    plan_.departed.push_back({gone.member, gone.rank, gone.first_exchange, Exchange(0)});
    Send(0);
  }
  void Send(uint64_t settled) {
    plan_.generation = plan_.generation.Next();
    for (int s = 0; s < cluster.servers(); ++s) late_[s].push_back({plan_, settled});
  }
  // One shard hears of the oldest thing it has not heard of.
  bool Deliver(int s) {
    if (late_[s].empty()) return false;
    const auto [plan, settled] = late_[s].front();
    late_[s].erase(late_[s].begin());
    cluster.shard(s).SetPlan(plan);
    if (settled != 0) cluster.shard(s).Withdraw(settled);
    return true;
  }
  void DeliverAll() {
    for (int s = 0; s < cluster.servers(); ++s) {
      while (Deliver(s)) {
      }
    }
  }

  const Plan& plan() const { return plan_; }
  bool open() const { return open_; }
  uint64_t round = 1;
  SubnetCluster cluster{FullyConnected({5, 23, 17, 4}, true, true), 3};

 private:
  std::mt19937 random_;
  Plan plan_;
  uint64_t next_member_ = 0;
  uint64_t proposal_ = 0;
  uint64_t begin_ = 0;
  bool open_ = false;
  std::map<int, std::vector<std::pair<Plan, uint64_t>>> late_;
};

float Value(uint64_t round, uint64_t member) {
  return static_cast<float>(round) + 0.01f * static_cast<float>(member);
}

// What all shards tell the live members of the open round: the same to each.
std::map<uint64_t, SubnetPlace> Places(Job* job) {
  std::map<uint64_t, SubnetPlace> places;
  for (const PlanMember& m : job->plan().members) {
    if (m.first_exchange > Exchange(job->round)) continue;
    for (int s = 0; s < job->cluster.servers(); ++s) {
      const auto read =
          job->cluster.shard(s).Read(m.member, Exchange(job->round - 1), SubnetPlace());
      INFO(read.status());
      REQUIRE(read.ok());
      REQUIRE(read->has_value());
      const auto place = std::get<SubnetPlace>((*read)->entries->name());
      const auto [it, fresh] = places.emplace(m.member.value(), place);
      REQUIRE(it->second == place);
    }
  }
  return places;
}

// Every neuron is one site's.
void CheckCut(const SubnetPlace& any) {
  for (const auto& [group, width] : {std::pair<int, int>{1, 23}, {2, 17}}) {
    std::multiset<int32_t> neurons;
    SubnetPlace place = any;
    for (place.site = 0; place.site < place.sites(); ++place.site) {
      for (const int32_t neuron : PartOf(place, group, width)) neurons.insert(neuron);
    }
    std::multiset<int32_t> all;
    for (int32_t i = 0; i < width; ++i) all.insert(i);
    REQUIRE(neurons == all);
  }
}

TEST_CASE(
    "however shares change and members come and go, all shards cut a round alike and hold what "
    "its sites returned",
    "[shard][subnet]") {
  const int seed = GENERATE(range(0, 30));
  CAPTURE(seed);
  Job job(seed);
  SubnetCluster& cluster = job.cluster;
  std::set<Shares> seen;
  for (job.round = 1; job.round <= 25; ++job.round) {
    CAPTURE(job.round);
    const std::map<uint64_t, SubnetPlace> places = Places(&job);
    REQUIRE_FALSE(places.empty());
    CheckCut(places.begin()->second);
    seen.insert(places.begin()->second.shares);
    if (!job.open() && job.Draw(2) == 0) job.Propose();
    // One may die before, or instead of, its push; the others' pushes come in any order.
    std::vector<uint64_t> order;
    for (const auto& [member, place] : places) order.push_back(member);
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[job.Draw(i)]);
    std::set<uint64_t> returned;
    const bool dies = places.size() > 1 && job.Draw(4) == 0;
    for (const uint64_t member : order) {
      if (dies && member == order.front()) continue;
      for (int s = 0; s < cluster.servers(); ++s) {
        cluster.Push(s, member, places.at(member),
                     [&](int, int64_t, int64_t) { return Value(job.round, member); });
        if (job.Draw(2) == 0) job.Deliver(static_cast<int>(job.Draw(3)));
      }
      returned.insert(member);
    }
    if (dies) {
      size_t which = 0;
      while (job.plan().members[which].member != MemberId(order.front())) ++which;
      job.Lose(which);
    }
    if (job.open() && job.Draw(2) == 0) job.Settle();
    if (job.open() && cluster.shard(0).counters().version.value() + 1 == job.round) {
      cluster.Settle();
      if (cluster.shard(0).counters().version.value() + 1 == job.round) job.Settle();
    }
    job.DeliverAll();
    cluster.Settle();
    for (int s = 0; s < cluster.servers(); ++s) {
      REQUIRE(cluster.shard(s).counters().version.value() == job.round);
    }
    cluster.ForEach([&](int p, int64_t i, int64_t j) {
      double sum = 0;
      for (const uint64_t member : returned) {
        if (cluster.IsShared(p)) {
          sum += Value(job.round, member);
        } else if (cluster.Has(places.at(member), p, i, j)) {
          cluster.At(p, i, j) = Value(job.round, member);
        }
      }
      if (cluster.IsShared(p)) {
        cluster.At(p, i, j) = static_cast<float>(sum / static_cast<double>(returned.size()));
      }
      return 0.0f;
    });
    REQUIRE(cluster.IsEqual());
  }
  CHECK(seen.size() > 2);
}

TEST_CASE("a push in another round's shares is refused, and the message has both",
          "[shard][subnet]") {
  Plan plan = PlanOfFirst(2);
  plan.shares = {{Exchange(1), {{MemberId(1), 3}, {MemberId(2), 1}}}};
  SubnetCluster cluster(FullyConnected({5, 8, 4}, true, false), 1);
  cluster.SetPlan(plan);
  SubnetPlace place = cluster.Place(1, 0, 2);
  const auto zero = [](int, int64_t, int64_t) { return 0.0f; };
  CHECK(cluster.shard(0).Accept(cluster.Good(0, 1, place, zero)).status().message() ==
        "push from member 1 exchange 1: subnet is site 0 of 2 (shares 1, 1), seed 5, want site 0 "
        "of 2 (shares 3, 1), seed 5 in round 1");
  place.shares = {3, 1};
  CHECK(PartOf(place, 1, 8).size() == 6);
  CHECK(cluster.shard(0).Accept(cluster.Good(0, 1, place, zero)).ok());
}

}  // namespace
}  // namespace tessera
