#include "server/shard/shard_memory.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "server/shard/block_store.h"
#include "server/shard/forms/site_subnet.h"
#include "server/shard/forms/subnet_rounds.h"
#include "tests/server/shard/subnet_cluster.h"

namespace tessera {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

struct Model {
  explicit Model(const std::vector<int64_t>& widths)
      : model(FullyConnected(widths, true, true)),
        shape(*ShapeOf(model)),
        groups(GroupsOf(shape)) {}
  ShardNeeds Needs(int servers, int64_t workers, bool subnets, int states = 0) const {
    ShardNeeds needs;
    needs.shape = &shape;
    needs.slices = SlicesOf(shape, ShardId(servers - 1), servers);
    needs.state_count = states;
    needs.workers = workers;
    needs.groups = subnets ? &groups : nullptr;
    return needs;
  }
  const v1::Model model;
  const ModelShape shape;
  const NeuronGroups groups;
};

}  // namespace

TEST_CASE("no push of hundreds is larger than the largest, which is of their order",
          "[shard][memory]") {
  const Model m({20, 400, 90, 6});
  const int servers = GENERATE(1, 3, 8);
  const uint32_t sites = GENERATE(1u, 4u, 8u);
  const bool by_speed = GENERATE(false, true);
  CAPTURE(servers, sites, by_speed);
  const ShardSlices slices = SlicesOf(m.shape, ShardId(0), servers);
  const double part = by_speed ? LargestPart(sites) : 1;
  const int64_t largest = LargestPush(m.shape, m.groups, slices, sites, part);
  int64_t most = 0;
  for (uint64_t round = 0; round < 300; ++round) {
    SubnetPlace place{7, round, static_cast<uint32_t>(round % sites),
                      std::vector<uint32_t>(sites, 1)};
    if (by_speed && sites > 1) {
      place.shares.assign(sites, static_cast<uint32_t>(7000 * (sites - part) / (sites - 1)));
      place.shares[place.site] = static_cast<uint32_t>(7000 * part);
    }
    most = std::max(most, SiteSubnet(m.shape, m.groups, place, slices).bytes());
  }
  CHECK(most <= largest);
  CHECK(largest <= 3 * most);
  if (sites == 1) CHECK(largest == slices.bytes());
}

TEST_CASE("without a limit a shard has room for all that is of use", "[shard][memory]") {
  const Model m({1000, 9000, 10});
  const ShardMemory dense = PlanShardMemory(m.Needs(1, 4, false, 2));
  CHECK(dense.slice == 4 * m.shape.size);
  CHECK(dense.pending == dense.slice);
  CHECK(dense.states == 2 * dense.slice);
  CHECK(dense.limits.staging_bytes == dense.slice);
  CHECK(dense.limits.copy_bytes == dense.slice);
  CHECK_FALSE(dense.limits.folds_wait_for_readers);
  const ShardMemory subnets = PlanShardMemory(m.Needs(1, 4, true, 2));
  // The last layer's bias, scale and shift, which all sites have.
  CHECK((subnets.pending == 8 * 30 && subnets.states == 0));
  CHECK(subnets.next_push < dense.next_push / 3);
  CHECK_FALSE(subnets.limits.folds_wait_for_readers);
  const ShardMemory small = PlanShardMemory(Model({9, 5}).Needs(1, 4, false));
  CHECK(small.limits.staging_bytes == 16 * kMiB);
  CHECK(small.limits.copy_bytes == kBlockBytes);
}

TEST_CASE("what all sites have is summed in twice its bytes", "[shard][memory][images]") {
  v1::Model model;
  for (const int64_t extent : {16, 6, 6}) model.add_input(extent);
  v1::Conv2d* const conv = model.add_layers()->mutable_conv2d();
  conv->set_channels(64);
  conv->add_kernel(3);
  for (const int64_t units : {20, 10}) model.add_layers()->mutable_linear()->set_units(units);
  const ModelShape shape = *ShapeOf(model);
  const NeuronGroups groups = GroupsOf(shape);
  const int servers = GENERATE(1, 3);
  int64_t pending = 0;
  for (int server = 0; server < servers; ++server) {
    ShardNeeds needs;
    needs.shape = &shape;
    needs.slices = SlicesOf(shape, ShardId(server), servers);
    needs.workers = 2;
    needs.groups = &groups;
    const int64_t planned = PlanShardMemory(needs).pending;
    // And a row, or a tile of one.
    const SubnetRounds rounds(shape, needs.slices, groups, 1);
    CHECK(rounds.memory_bytes() >= planned);
    CHECK(rounds.memory_bytes() <= planned + (64 << 10));
    pending += planned;
  }
  CHECK(pending == 8 * 64 * 16 * 9);
}

TEST_CASE("what does not fit makes staging smaller, and copies where folds can wait",
          "[shard][memory]") {
  const bool subnets = GENERATE(false, true);
  const Model m({1000, 9000, 10});
  const ShardNeeds needs = m.Needs(2, 4, subnets);
  const ShardMemory all = PlanShardMemory(needs);
  const ShardMemory least = PlanShardMemory(needs, 0);
  CHECK(least.limits.staging_bytes == 0);
  CHECK(least.limits.folds_wait_for_readers == subnets);
  CHECK(least.limits.copy_bytes == (subnets ? 0 : all.limits.copy_bytes));
  CHECK(least.total() == least.slice + least.pending + least.next_push + least.limits.copy_bytes);
  int64_t staging = 0;
  for (int64_t limit = least.total(); limit < all.total(); limit += kMiB / 2) {
    const ShardMemory memory = PlanShardMemory(needs, limit);
    REQUIRE(memory.total() <= limit);
    REQUIRE(memory.limits.staging_bytes >= staging);
    staging = memory.limits.staging_bytes;
  }
  CHECK(staging > 0);
  CHECK(PlanShardMemory(needs, all.total()).limits.copy_bytes == all.limits.copy_bytes);
}

}  // namespace tessera
