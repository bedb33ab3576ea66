#include "tests/server/shard/shard_fixture.h"

#include <catch2/catch.hpp>

#include "common/codec/arrival_check.h"
#include "common/codec/coded_keys.h"

namespace tessera {
namespace {

Shard::Options OptionsOf(ModelShape shape, std::unique_ptr<ConsistencyPolicy> policy,
                         std::unique_ptr<UpdateRule> rule, int shard, int shard_count,
                         uint64_t seed) {
  Shard::Options options;
  options.shape = std::move(shape);
  options.shard = ShardId(shard);
  options.sharding = shard_count;
  options.seed = seed;
  options.policy = std::move(policy);
  options.rule = std::move(rule);
  return options;
}

}  // namespace

ModelShape ZeroMatrix(int64_t rows, int64_t columns) {
  ModelShape shape;
  shape.parameters = {{"w", rows, columns, false, 0, 0, 0}};
  shape.size = rows * columns;
  return shape;
}

Payload PayloadOf(const std::vector<float>& values) {
  auto owner = std::make_shared<std::vector<float>>(values);
  Payload payload;
  const char* data = reinterpret_cast<const char*>(owner->data());
  payload.Append({data, static_cast<int64_t>(values.size() * sizeof(float))}, owner);
  return payload;
}

std::vector<float> ValuesOf(const Snapshot& snapshot) {
  std::vector<float> values;
  for (const std::shared_ptr<const Block>& block : snapshot.blocks()) {
    values.insert(values.end(), block->data(), block->data() + block->size());
  }
  return values;
}

Plan PlanOf(uint64_t generation, std::vector<std::pair<uint64_t, uint64_t>> members) {
  Plan plan;
  plan.generation = Generation(generation);
  for (const auto& [member, first] : members) {
    plan.members.push_back({MemberId(member), Rank(member), Exchange(first)});
  }
  return plan;
}

Plan PlanOfFirst(int count) {
  std::vector<std::pair<uint64_t, uint64_t>> members;
  for (int member = 1; member <= count; ++member) members.push_back({member, 1});
  return PlanOf(1, members);
}

ShardFixture::ShardFixture(ModelShape shape, std::unique_ptr<ConsistencyPolicy> policy,
                           std::unique_ptr<UpdateRule> rule, int shard, int shard_count,
                           uint64_t seed)
    : shard(OptionsOf(std::move(shape), std::move(policy), std::move(rule), shard, shard_count,
                      seed)) {}

ReceivedPush ShardFixture::Good(uint64_t member, uint64_t exchange,
                                const std::vector<float>& values) const {
  ReceivedPush push;
  push.member = MemberId(member);
  push.exchange = Exchange(exchange);
  push.base = shard.counters().version;
  push.layout_hash = shard.layout_hash();
  push.payload = PayloadOf(values);
  push.bad_entry = FirstBadEntry(
      CodedKeys::Plain(Codec(), push.payload.size() / static_cast<int64_t>(sizeof(float))),
      push.payload);
  return push;
}

absl::StatusOr<PushAccepted> ShardFixture::Send(uint64_t member, uint64_t exchange,
                                                const std::vector<float>& values) {
  return shard.Accept(Good(member, exchange, values));
}

absl::StatusOr<PushAccepted> ShardFixture::Push(uint64_t member, uint64_t exchange,
                                                const std::vector<float>& values) {
  absl::StatusOr<PushAccepted> accepted = Send(member, exchange, values);
  Settle();
  return accepted;
}

void ShardFixture::MustPush(uint64_t member, uint64_t exchange, const std::vector<float>& values) {
  const absl::StatusOr<PushAccepted> accepted = Push(member, exchange, values);
  INFO(accepted.status());
  REQUIRE(accepted.ok());
  REQUIRE_FALSE(accepted->duplicate);
}

int ShardFixture::Settle() {
  int pieces = 0;
  while (shard.Advance(now)) ++pieces;
  return pieces;
}

absl::StatusOr<std::optional<std::vector<float>>> ShardFixture::Read(uint64_t member,
                                                                     uint64_t exchange) {
  absl::StatusOr<std::optional<ReadResult>> result =
      shard.Read(MemberId(member), Exchange(exchange));
  if (!result.ok()) return result.status();
  if (!result->has_value()) return std::optional<std::vector<float>>();
  return std::optional<std::vector<float>>(ValuesOf(*(*result)->snapshot));
}

std::vector<uint64_t> ShardFixture::WaitsFor() const {
  std::vector<uint64_t> members;
  for (const MemberId member : shard.WaitsFor()) members.push_back(member.value());
  return members;
}

}  // namespace tessera
