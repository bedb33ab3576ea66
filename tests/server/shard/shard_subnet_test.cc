// Rounds of subnets on a shard, against whole matrices.
#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "common/consistency/barrier.h"
#include "common/rule/add.h"
#include "tests/server/shard/shard_fixture.h"
#include "server/shard/forms/site_subnet.h"
#include "tests/server/shard/subnet_cluster.h"

namespace tessera {
namespace {

// What a site makes of an entry in a round: no two alike, none a round number.
float Trained(uint64_t round, uint32_t site, int parameter, int64_t row, int64_t column) {
  return 0.1f * static_cast<float>(round) + 1.7f * static_cast<float>(site) +
         0.01f * static_cast<float>(parameter) + 0.003f * static_cast<float>(row) -
         0.0007f * static_cast<float>(column);
}

SubnetCluster::EntryFunction TrainedBy(const SubnetPlace& place) {
  return [place](int p, int64_t i, int64_t j) { return Trained(place.round, place.site, p, i, j); };
}

// The model after a round that these sites of `sites` have returned.
void CloseByHand(SubnetCluster* cluster, uint64_t round, uint32_t sites,
                 const std::vector<uint32_t>& returned) {
  cluster->ForEach([&](int p, int64_t i, int64_t j) {
    double sum = 0;
    for (const uint32_t site : returned) {
      const float value = Trained(round, site, p, i, j);
      if (cluster->IsShared(p)) {
        sum += value;
      } else if (cluster->Has(cluster->Place(round, site, sites), p, i, j)) {
        cluster->At(p, i, j) = value;
      }
    }
    if (cluster->IsShared(p)) {
      cluster->At(p, i, j) = static_cast<float>(sum / static_cast<double>(returned.size()));
    }
    return 0.0f;
  });
}

// Fetches of all sites are the model's values, on all servers.
void CheckFetches(SubnetCluster* cluster, uint64_t round, uint32_t sites) {
  for (int server = 0; server < cluster->servers(); ++server) {
    for (uint32_t site = 0; site < sites; ++site) {
      const auto got = cluster->Fetch(server, site + 1, round);
      INFO(got.status());
      REQUIRE(got.ok());
      REQUIRE(got->has_value());
      const std::vector<float> want =
          cluster->OnServer(server, cluster->Place(round, site, sites),
                            [&](int p, int64_t i, int64_t j) { return cluster->At(p, i, j); });
      REQUIRE(**got == want);
    }
  }
}

TEST_CASE("fetched, pushed and closed rounds equal whole matrices cut by hand", "[shard][subnet]") {
  const auto [servers, sites, bias, norm] =
      GENERATE(table<int, uint32_t, bool, bool>({{1, 1, true, true},
                                                 {1, 2, false, false},
                                                 {2, 3, true, true},
                                                 {5, 2, true, true},
                                                 {2, 5, false, true},
                                                 {5, 4, true, false}}));
  // Group sizes that nothing divides, one of them smaller than the most sites.
  SubnetCluster cluster(FullyConnected({7, 13, 4, 9, 3}, bias, norm), servers);
  cluster.SetPlan(PlanOfFirst(sites));
  std::mt19937 random(servers * 10 + sites);
  for (uint64_t round = 1; round <= 4; ++round) {
    CheckFetches(&cluster, round, sites);
    std::vector<uint32_t> order(sites);
    for (uint32_t site = 0; site < sites; ++site) order[site] = site;
    for (int server = 0; server < servers; ++server) {
      std::shuffle(order.begin(), order.end(), random);
      for (const uint32_t site : order) {
        const SubnetPlace place = cluster.Place(round, site, sites);
        cluster.Push(server, site + 1, place, TrainedBy(place));
        if (site % 2 == 0) cluster.Settle();
      }
    }
    cluster.Settle();
    std::sort(order.begin(), order.end());
    CloseByHand(&cluster, round, sites, order);
    REQUIRE(cluster.IsEqual());
    for (int server = 0; server < servers; ++server) {
      const ShardCounters counters = cluster.shard(server).counters();
      CHECK(counters.version == Version(round));
      CHECK(counters.collecting == Exchange(round + 1));
      CHECK(counters.examples == 10 * round * sites);
      CHECK(counters.staged_bytes == 0);
    }
  }
}

TEST_CASE("a layer between inputs and outputs alone is shared whole", "[shard][subnet]") {
  SubnetCluster cluster(FullyConnected({6, 5}, true, false), 2);
  cluster.SetPlan(PlanOfFirst(3));
  CheckFetches(&cluster, 1, 3);
  for (int server = 0; server < 2; ++server) {
    for (const uint32_t site : {2, 0, 1}) {
      const SubnetPlace place = cluster.Place(1, site, 3);
      cluster.Push(server, site + 1, place, TrainedBy(place));
    }
  }
  cluster.Settle();
  CloseByHand(&cluster, 1, 3, {0, 1, 2});
  CHECK(cluster.IsEqual());
}

TEST_CASE("rounds in which nothing is trained change no bit", "[shard][subnet]") {
  const int sites = GENERATE(1, 3, 7);
  SubnetCluster cluster(FullyConnected({6, 14, 9, 5}, true, true), 2);
  cluster.SetPlan(PlanOfFirst(sites));
  uint64_t round = 1;
  const auto run = [&](bool trains) {
    for (uint32_t site = 0; site < static_cast<uint32_t>(sites); ++site) {
      const SubnetPlace place = cluster.Place(round, site, sites);
      for (int server = 0; server < 2; ++server) {
        cluster.Push(server, site + 1, place, [&](int p, int64_t i, int64_t j) {
          return trains ? Trained(round, site, p, i, j) : cluster.At(p, i, j);
        });
      }
    }
    cluster.Settle();
    ++round;
  };
  run(true);  // So that shared values are no longer round numbers.
  std::vector<uint32_t> all(sites);
  for (int site = 0; site < sites; ++site) all[site] = site;
  CloseByHand(&cluster, 1, sites, all);
  const uint64_t hash = cluster.shard(0).ParametersHash() + cluster.shard(1).ParametersHash();
  for (int i = 0; i < 5; ++i) {
    run(false);
    CHECK(cluster.shard(0).ParametersHash() + cluster.shard(1).ParametersHash() == hash);
  }
  CHECK(cluster.shard(0).counters().version == Version(6));
  CHECK(cluster.IsEqual());
}

TEST_CASE("the mean of what sites share is exact where they agree", "[shard][subnet]") {
  std::mt19937 random(1);
  SubnetCluster cluster(FullyConnected({300, 2}, true, false), 1);
  cluster.SetPlan(PlanOfFirst(3));
  cluster.ForEach([&](int p, int64_t i, int64_t j) {
    return cluster.At(p, i, j) = std::uniform_real_distribution<float>(-3, 3)(random);
  });
  cluster.At(0, 0, 0) = -0.0f;
  cluster.At(0, 0, 1) = std::numeric_limits<float>::max();
  cluster.At(0, 0, 2) = std::numeric_limits<float>::denorm_min();
  for (uint32_t site = 0; site < 3; ++site) {
    cluster.Push(0, site + 1, cluster.Place(1, site, 3),
                 [&](int p, int64_t i, int64_t j) { return cluster.At(p, i, j); });
  }
  cluster.Settle();
  CHECK(cluster.IsEqual());
}

TEST_CASE("a snapshot never changes, and only blocks that a push touches are copied",
          "[shard][subnet]") {
  // Each row of the first matrix is a block of its own.
  SubnetCluster cluster(FullyConnected({300000, 3, 2}, false, false), 1);
  cluster.SetPlan(PlanOfFirst(3));
  const std::shared_ptr<const Snapshot> before = cluster.shard(0).ReadNow().snapshot;
  const std::vector<float> values = ValuesOf(*before);
  REQUIRE(before->blocks().size() == 4);
  const SubnetPlace place = cluster.Place(1, 0, 3);
  const auto values_of_site = cluster.shard(0).Read(MemberId(1), Exchange(0), SubnetPlace());
  ReceivedPush push = cluster.Good(0, 1, place, [](int, int64_t, int64_t) { return 2.0f; });
  REQUIRE(cluster.shard(0).Accept(std::move(push)).ok());
  cluster.Settle();
  CHECK(ValuesOf(*before) == values);
  const std::shared_ptr<const Snapshot> after = cluster.shard(0).ReadNow().snapshot;
  const int64_t row = PartOf(place, 1, 3).front();
  for (int64_t block = 0; block < 3; ++block) {
    CHECK((after->blocks()[block] == before->blocks()[block]) == (block != row));
  }
  CHECK(after->blocks()[3] != before->blocks()[3]);
  CHECK(after->blocks()[row]->data()[299999] == 2.0f);
  // What was fetched before the push is still what it was.
  SubnetGather gather(std::static_pointer_cast<const SiteSubnet>((*values_of_site)->entries),
                      (*values_of_site)->snapshot);
  std::vector<float> gathered(gather.left());
  gather.Next(gather.left(), gathered.data());
  CHECK(gathered.front() == values[row * 300000]);
  CHECK(cluster.shard(0).counters().copied_bytes_peak < int64_t{3} * 1200000);
}

TEST_CASE("nothing is copied where nobody reads", "[shard][subnet]") {
  SubnetCluster cluster(FullyConnected({100, 50, 2}, true, false), 1);
  cluster.SetPlan(PlanOfFirst(2));
  for (uint64_t round = 1; round <= 3; ++round) {
    for (uint32_t site = 0; site < 2; ++site) {
      const SubnetPlace place = cluster.Place(round, site, 2);
      CHECK(cluster.Fetch(0, site + 1, round).ok());
      cluster.Push(0, site + 1, place, TrainedBy(place));
      cluster.Settle();
    }
  }
  CHECK(cluster.shard(0).counters().copied_bytes_peak == 0);
}

struct Refusal {
  SubnetCluster cluster{FullyConnected({6, 8, 4}, true, false), 1};
  Refusal() {
    cluster.SetPlan(PlanOfFirst(2));
    for (uint32_t site = 0; site < 2; ++site) {
      const SubnetPlace place = cluster.Place(1, site, 2);
      cluster.Push(0, site + 1, place, TrainedBy(place));
    }
    cluster.Settle();
  }
  // Member 1's push of round 2, spoilt.
  void Expect(absl::StatusCode code, const std::string& message,
              const std::function<void(ReceivedPush*)>& spoil) {
    const uint64_t hash = cluster.shard(0).ParametersHash();
    const SubnetPlace place = cluster.Place(2, 0, 2);
    ReceivedPush push = cluster.Good(0, 1, place, TrainedBy(place));
    spoil(&push);
    const absl::Status status = cluster.shard(0).Accept(std::move(push)).status();
    INFO(message);
    CHECK(status.code() == code);
    CHECK(std::string(status.message()) == message);
    cluster.Settle();
    CHECK(cluster.shard(0).ParametersHash() == hash);
  }
};

SubnetPlace& PlaceOf(ReceivedPush* push) { return std::get<SubnetPlace>(push->keys); }

TEST_CASE("a push of another subnet is refused, and the message says which", "[shard][subnet]") {
  Refusal refusal;
  const absl::StatusCode failed = absl::StatusCode::kFailedPrecondition;
  const std::string where = "push from member 1 exchange 2: ";
  refusal.Expect(failed,
                 where + "subnet is of round 3, want round 2, which is open; fetch before pushing",
                 [](ReceivedPush* push) { PlaceOf(push).round = 3; });
  refusal.Expect(
      failed,
      "push from member 1 exchange 3: subnet is of round 3, want round 2, which is open; "
      "fetch before pushing",
      [](ReceivedPush* push) {
        PlaceOf(push).round = 3;
        push->exchange = Exchange(3);
      });
  refusal.Expect(failed,
                 where + "subnet is of round 1, want round 2, which is open; fetch before pushing",
                 [](ReceivedPush* push) { PlaceOf(push).round = 1; });
  refusal.Expect(failed,
                 where +
                     "subnet is site 1 of 2 (shares 1, 1), seed 5, want site 0 of 2 (shares 1, "
                     "1), seed 5 in round 2",
                 [](ReceivedPush* push) { PlaceOf(push).site = 1; });
  refusal.Expect(failed,
                 where +
                     "subnet is site 0 of 2 (shares 1, 1), seed 6, want site 0 of 2 (shares 1, "
                     "1), seed 5 in round 2",
                 [](ReceivedPush* push) { PlaceOf(push).seed = 6; });
  refusal.Expect(failed,
                 where +
                     "subnet is site 0 of 2 (shares 1, 2), seed 5, want site 0 of 2 (shares 1, "
                     "1), seed 5 in round 2",
                 [](ReceivedPush* push) { PlaceOf(push).shares[1] = 2; });
  refusal.Expect(failed,
                 where +
                     "subnet is site 0 of 9 (shares 1, 1, 1, 1, 1, 1, 1, 1, ...), seed 5, want "
                     "site 0 of 2 (shares 1, 1), seed 5 in round 2",
                 [](ReceivedPush* push) { PlaceOf(push).shares.assign(9, 1); });
  CHECK(refusal.cluster.shard(0).counters().refused == 7);
}

TEST_CASE("a push of the wrong size, kind or values is refused", "[shard][subnet]") {
  Refusal refusal;
  const absl::StatusCode invalid = absl::StatusCode::kInvalidArgument;
  const std::string where = "push from member 1 exchange 2: ";
  refusal.Expect(invalid, where + "keys are dense, want a subnet's",
                 [](ReceivedPush* push) { push->keys = AllEntries(); });
  refusal.Expect(invalid, where + "payload kind is 1, want 2; the job's methods differ",
                 [](ReceivedPush* push) { push->kind = 1; });
  // 4 rows of 6 and their biases, 4 rows of 4 and their biases.
  refusal.Expect(invalid,
                 where +
                     "payload is 188 bytes, want 192 (48 entries as f32); layouts differ, "
                     "compare layout_hash in status",
                 [](ReceivedPush* push) { push->payload = PayloadOf(std::vector<float>(47)); });
  // The first entry of the second matrix: its row is whole, its column the site's first.
  const int32_t column = PartOf(refusal.cluster.Place(2, 0, 2), 1, 8).front();
  refusal.Expect(invalid,
                 where + "layers.2.weight[0, " + std::to_string(column) +
                     "] is not finite; the training diverged, try a lower learning rate",
                 [](ReceivedPush* push) { push->bad_entry = 28; });
  ShardFixture dense(ZeroMatrix(2, 2), MakeBarrier(), MakeAdd());
  dense.shard.SetPlan(PlanOfFirst(1));
  ReceivedPush push = dense.Good(1, 1, {1, 2, 3, 4});
  push.keys = SubnetPlace{1, 1, 0, {1}};
  const absl::Status status = dense.shard.Accept(std::move(push)).status();
  CHECK(status.code() == invalid);
  CHECK(status.message() ==
        "push from member 1 exchange 1: keys are a subnet's, want dense; the job's methods differ");
  CHECK(dense.shard.Read(MemberId(1), Exchange(0), SubnetPlace()).status().code() == invalid);
}

TEST_CASE("a repeated push of a subnet is dropped", "[shard][subnet]") {
  SubnetCluster cluster(FullyConnected({6, 8, 4}, true, false), 1);
  cluster.SetPlan(PlanOfFirst(1));
  const SubnetPlace place = cluster.Place(1, 0, 1);
  cluster.Push(0, 1, place, TrainedBy(place));
  cluster.Settle();
  const auto again = cluster.shard(0).Accept(
      cluster.Good(0, 1, place, [](int, int64_t, int64_t) { return 9.0f; }));
  REQUIRE(again.ok());
  CHECK(again->duplicate);
  cluster.Settle();
  CloseByHand(&cluster, 1, 1, {0});
  CHECK(cluster.IsEqual());
}

TEST_CASE("a fetch waits for its round, and another round's is refused with both named",
          "[shard][subnet]") {
  SubnetCluster cluster(FullyConnected({6, 8, 4}, true, false), 1);
  cluster.SetPlan(PlanOfFirst(2));
  const auto expect_refusal = [&](uint64_t member, uint64_t round, const std::string& message) {
    const auto got = cluster.Fetch(0, member, round);
    CHECK(got.status().code() == absl::StatusCode::kFailedPrecondition);
    CHECK(std::string(got.status().message()) == message);
  };
  for (uint64_t round = 1; round <= 2; ++round) {
    CHECK_FALSE(cluster.Fetch(0, 1, round + 1)->has_value());
    const std::string open = std::to_string(round);
    expect_refusal(1, round - 1,
                   "fetch from member 1 round " + std::to_string(round - 1) + ": round " + open +
                       " is open, want that one or the next");
    expect_refusal(1, round + 2,
                   "fetch from member 1 round " + std::to_string(round + 2) + ": round " + open +
                       " is open, want that one or the next");
    expect_refusal(9, round,
                   "fetch from member 9 round " + open +
                       ": not a member of the current plan (generation 1); its lease has ended, or "
                       "it never joined");
    for (uint32_t site = 0; site < 2; ++site) {
      CHECK_FALSE(cluster.Fetch(0, 1, round + 1)->has_value());
      const SubnetPlace place = cluster.Place(round, site, 2);
      cluster.Push(0, site + 1, place, TrainedBy(place));
      cluster.Settle();
    }
    CHECK(cluster.Fetch(0, 1, round + 1)->has_value());
  }
}

}  // namespace
}  // namespace tessera
