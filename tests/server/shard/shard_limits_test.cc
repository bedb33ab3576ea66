// What a shard does on a small memory.
#include <catch2/catch.hpp>
#include <memory>
#include <optional>
#include <vector>

#include "server/shard/block_store.h"
#include "tests/server/shard/shard_fixture.h"
#include "tests/server/shard/subnet_cluster.h"

namespace tessera {
namespace {

ShardLimits Waiting() {
  ShardLimits limits;
  limits.folds_wait_for_readers = true;
  return limits;
}

SubnetCluster::EntryFunction Value(float value) {
  return [value](int, int64_t, int64_t) { return value; };
}

const v1::Model kModel = FullyConnected({7, 12, 9, 3}, true, true);

TEST_CASE("a fold waits for those who read, and then copies nothing", "[shard][subnet][limits]") {
  const bool waits = GENERATE(true, false);
  SubnetCluster cluster(kModel, 1, 5, waits ? std::optional<ShardLimits>(Waiting()) : std::nullopt);
  Shard& shard = cluster.shard(0);
  cluster.SetPlan(PlanOfFirst(2));
  const absl::Time begin = absl::UnixEpoch();
  auto reader = shard.Read(MemberId(2), Exchange(0), SubnetPlace());
  REQUIRE((reader.ok() && reader->has_value()));
  const std::vector<float> before = ValuesOf(*(*reader)->snapshot);
  REQUIRE(shard.Accept(cluster.Good(0, 1, cluster.Place(1, 0, 2), Value(3))).ok());
  CHECK(shard.Advance(begin) == !waits);
  CHECK((shard.counters().staged_bytes > 0) == waits);
  CHECK(ValuesOf(*(*reader)->snapshot) == before);
  if (!waits) {
    CHECK(shard.counters().copied_bytes_peak > 0);
    return;
  }
  // It looks again soon, and for as long as there is somebody.
  REQUIRE(shard.Deadline().has_value());
  CHECK(*shard.Deadline() > begin);
  CHECK(*shard.Deadline() <= begin + absl::Milliseconds(10));
  CHECK_FALSE(shard.Advance(begin + absl::Seconds(29)));
  reader = absl::CancelledError("done");
  CHECK(shard.Advance(begin + absl::Seconds(29.5)));
  CHECK(shard.counters().staged_bytes == 0);
  CHECK(shard.counters().copied_bytes_peak == 0);
  CHECK_FALSE(shard.Advance(begin + absl::Seconds(29.6)));
  CHECK_FALSE(shard.Deadline().has_value());
}

TEST_CASE("a reader that does not end holds up nobody for ever", "[shard][subnet][limits]") {
  SubnetCluster cluster(kModel, 1, 5, Waiting());
  Shard& shard = cluster.shard(0);
  cluster.SetPlan(PlanOfFirst(1));
  const absl::Time begin = absl::UnixEpoch();
  const ReadResult stuck = shard.ReadNow();
  const std::vector<float> before = ValuesOf(*stuck.snapshot);
  REQUIRE(shard.Accept(cluster.Good(0, 1, cluster.Place(1, 0, 1), Value(3))).ok());
  CHECK_FALSE(shard.Advance(begin));
  CHECK_FALSE(shard.Advance(begin + absl::Seconds(20)));
  CHECK(shard.Advance(begin + absl::Seconds(31)));
  CHECK(ValuesOf(*stuck.snapshot) == before);
  CHECK(ValuesOf(*shard.ReadNow().snapshot) != before);
  // The next one has its time from when it comes.
  REQUIRE(shard.Accept(cluster.Good(0, 1, cluster.Place(2, 0, 1), Value(4))).ok());
  CHECK(shard.Advance(begin + absl::Seconds(32)));
}

TEST_CASE("a checkpoint that is being written holds up no fold, and takes a slice at most",
          "[shard][subnet][limits][copies]") {
  // Of several blocks.
  const v1::Model model = FullyConnected({600, 1500, 9}, true, true);
  SubnetCluster cluster(model, 1, 5, Waiting());
  Shard& shard = cluster.shard(0);
  cluster.SetPlan(PlanOfFirst(1));
  const absl::Time now = absl::UnixEpoch();
  REQUIRE(shard.Order({{1, 10}, Exchange(1)}).ok());
  REQUIRE(shard.Accept(cluster.Good(0, 1, cluster.Place(1, 0, 1), Value(1))).ok());
  REQUIRE(shard.Advance(now));
  CHECK(shard.counters().copied_bytes_peak == 0);
  std::optional<ShardCopy> copy = shard.TakeCopy();
  REQUIRE(copy.has_value());
  const std::vector<float> saved = ValuesOf(*copy->values.snapshot);
  for (uint64_t round = 2; round <= 4; ++round) {
    CAPTURE(round);
    auto reader = shard.Read(MemberId(1), Exchange(round - 1), SubnetPlace());
    REQUIRE((reader.ok() && reader->has_value()));
    REQUIRE(shard
                .Accept(cluster.Good(0, 1, cluster.Place(round, 0, 1),
                                     Value(static_cast<float>(round))))
                .ok());
    CHECK_FALSE(shard.Advance(now));
    CHECK_FALSE((*reader)->snapshot->revoked());
    reader = absl::CancelledError("done");
    CHECK(shard.Advance(now));
  }
  CHECK(ValuesOf(*copy->values.snapshot) == saved);
  CHECK(ValuesOf(*shard.ReadNow().snapshot) != saved);
  CHECK_FALSE(copy->values.snapshot->revoked());
  const int64_t copied = shard.counters().copied_bytes_peak;
  CHECK(copied > 2 * kBlockBytes);
  CHECK(copied <= copy->values.snapshot->bytes());
}

TEST_CASE("rounds are the same where folds wait", "[shard][subnet][limits]") {
  std::vector<uint64_t> hashes;
  for (const bool waits : {false, true}) {
    SubnetCluster cluster(kModel, 2, 5,
                          waits ? std::optional<ShardLimits>(Waiting()) : std::nullopt);
    cluster.SetPlan(PlanOfFirst(3));
    for (uint64_t round = 1; round <= 3; ++round) {
      for (int server = 0; server < 2; ++server) {
        for (uint32_t site = 0; site < 3; ++site) {
          REQUIRE(cluster.Fetch(server, site + 1, round)->has_value());
        }
        for (uint32_t site = 0; site < 3; ++site) {
          cluster.Push(server, site + 1, cluster.Place(round, site, 3),
                       Value(static_cast<float>(round + site)));
        }
      }
      cluster.Settle();
    }
    hashes.push_back(cluster.shard(0).ParametersHash() + cluster.shard(1).ParametersHash());
  }
  CHECK(hashes[0] == hashes[1]);
}

TEST_CASE("without room for others only the next in order has a place", "[shard][limits]") {
  SubnetCluster cluster(kModel, 1, 5, Waiting());
  Shard& shard = cluster.shard(0);
  cluster.SetPlan(PlanOfFirst(3));
  CHECK_FALSE(shard.Reserve(MemberId(2), 100));
  CHECK_FALSE(shard.Reserve(MemberId(3), 100));
  CHECK(shard.Reserve(MemberId(1), 100));
  REQUIRE(shard.Accept(cluster.Good(0, 1, cluster.Place(1, 0, 3), Value(1))).ok());
  REQUIRE(shard.Advance(absl::UnixEpoch()));
  CHECK_FALSE(shard.Reserve(MemberId(3), 100));
  CHECK(shard.Reserve(MemberId(2), 100));
}

}  // namespace
}  // namespace tessera
