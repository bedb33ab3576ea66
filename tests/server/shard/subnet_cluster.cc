#include "tests/server/shard/subnet_cluster.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>

#include "common/codec/arrival_check.h"
#include "common/codec/coded_keys.h"
#include "common/consistency/barrier.h"
#include "common/rule/add.h"
#include "server/shard/forms/site_subnet.h"
#include "tests/server/shard/shard_fixture.h"

namespace tessera {
namespace {

constexpr int kDeltaKind = 1;
constexpr int kValueKind = 2;

}  // namespace

SubnetCluster::SubnetCluster(const v1::Model& model, int servers, uint64_t seed,
                             const std::optional<ShardLimits>& limits, bool has_tail)
    : description_(model), shape_(*ShapeOf(model)), groups_(GroupsOf(shape_)), seed_(seed) {
  for (int s = 0; s < servers; ++s) {
    Shard::Options options;
    options.shape = shape_;
    options.shard = ShardId(s);
    options.sharding = servers;
    options.seed = seed;
    options.kind = kValueKind;
    options.policy = MakeBarrier();
    options.rule = MakeAdd();
    options.groups = groups_;
    options.limits = limits;
    if (has_tail) options.whole_kind = kDeltaKind;
    shards_.push_back(std::make_unique<Shard>(std::move(options)));
  }
  for (size_t i = 0; i < shape_.parameters.size(); ++i) {
    const ParameterSpec& spec = shape_.parameters[i];
    model_.emplace_back(spec.size());
    FillInitialRows(spec, static_cast<int>(i), seed, 0, spec.rows, model_.back().data());
  }
}

void SubnetCluster::SetPlan(const Plan& plan) {
  for (const auto& shard : shards_) shard->SetPlan(plan);
}

void SubnetCluster::Settle() {
  for (const auto& shard : shards_) {
    while (shard->Advance(absl::UnixEpoch())) {
    }
  }
}

SubnetPlace SubnetCluster::Place(uint64_t round, uint32_t site, uint32_t sites) const {
  return {seed_, round, site, std::vector<uint32_t>(sites, 1)};
}

bool SubnetCluster::Has(const SubnetPlace& place, int parameter, int64_t row,
                        int64_t column) const {
  const auto owns = [&](int group, int64_t neuron) {
    if (group < 0 || !groups_.IsCut(group)) return true;
    std::vector<bool>& owned = owned_[{place.seed, place.round, place.site, place.shares, group}];
    if (owned.empty()) {
      owned.resize(groups_.widths[group]);
      for (const int32_t mine : PartOf(place, group, groups_.widths[group])) owned[mine] = true;
    }
    return static_cast<bool>(owned[neuron]);
  };
  return owns(groups_.uses[parameter].rows, row) && owns(groups_.uses[parameter].columns, column);
}

bool SubnetCluster::IsShared(int parameter) const {
  const NeuronGroups::Use& use = groups_.uses[parameter];
  return !groups_.IsCut(use.rows) && (use.columns < 0 || !groups_.IsCut(use.columns));
}

void SubnetCluster::ForEach(const EntryFunction& f) const {
  for (size_t i = 0; i < shape_.parameters.size(); ++i) {
    const ParameterSpec& spec = shape_.parameters[i];
    for (int64_t row = 0; row < spec.rows; ++row) {
      for (int64_t column = 0; column < spec.columns; ++column) f(i, row, column);
    }
  }
}

std::vector<float> SubnetCluster::OnServer(int server, const SubnetPlace& place,
                                           const EntryFunction& f) const {
  std::vector<float> values;
  for (const Slice& slice : shards_[server]->slices().slices) {
    for (int64_t row = slice.row_begin; row < slice.row_end; ++row) {
      for (int64_t column = 0; column < slice.columns; ++column) {
        if (Has(place, slice.parameter, row, column)) {
          values.push_back(f(slice.parameter, row, column));
        }
      }
    }
  }
  return values;
}

bool SubnetCluster::IsEqual() {
  for (const auto& shard : shards_) {
    const std::vector<float> values = ValuesOf(*shard->ReadNow().snapshot);
    const float* next = values.data();
    for (const Slice& slice : shard->slices().slices) {
      const float* const want = model_[slice.parameter].data() + slice.row_begin * slice.columns;
      if (std::memcmp(next, want, slice.size() * sizeof(float)) != 0) return false;
      next += slice.size();
    }
  }
  return true;
}

absl::StatusOr<std::optional<std::vector<float>>> SubnetCluster::Fetch(int server, uint64_t member,
                                                                       uint64_t round) {
  absl::StatusOr<std::optional<ReadResult>> result =
      shards_[server]->Read(MemberId(member), Exchange(round - 1), SubnetPlace());
  if (!result.ok()) return result.status();
  if (!result->has_value()) return std::optional<std::vector<float>>();
  SubnetGather gather(std::static_pointer_cast<const SiteSubnet>((*result)->entries),
                      (*result)->snapshot);
  std::vector<float> values(gather.left());
  int64_t piece = 1;
  for (float* out = values.data(); gather.left() > 0;) {
    const int64_t count = std::min(piece, gather.left());
    gather.Next(count, out);
    out += count;
    piece = piece * 3 % 61 + 1;
  }
  return std::optional<std::vector<float>>(std::move(values));
}

ReceivedPush SubnetCluster::Good(int server, uint64_t member, const SubnetPlace& place,
                                 const EntryFunction& f) {
  ReceivedPush push = GoodPush(server, member, place.round, OnServer(server, place, f));
  push.kind = kValueKind;
  push.keys = place;
  return push;
}

ReceivedPush SubnetCluster::GoodWhole(int server, uint64_t member, uint64_t exchange,
                                      const EntryFunction& f) {
  std::vector<float> entries;
  for (const Slice& slice : shards_[server]->slices().slices) {
    for (int64_t row = slice.row_begin; row < slice.row_end; ++row) {
      for (int64_t j = 0; j < slice.columns; ++j) entries.push_back(f(slice.parameter, row, j));
    }
  }
  ReceivedPush push = GoodPush(server, member, exchange, std::move(entries));
  push.kind = kDeltaKind;
  return push;
}

ReceivedPush SubnetCluster::GoodPush(int server, uint64_t member, uint64_t exchange,
                                     std::vector<float> entries) {
  ReceivedPush push;
  push.member = MemberId(member);
  push.exchange = Exchange(exchange);
  push.base = shards_[server]->counters().version;
  push.layout_hash = shards_[server]->layout_hash();
  push.examples = 10;
  auto values = std::make_shared<std::vector<float>>(std::move(entries));
  const char* const bytes = reinterpret_cast<const char*>(values->data());
  const int64_t size = static_cast<int64_t>(values->size() * sizeof(float));
  for (int64_t begin = 0; begin < size; begin += 37) {
    push.payload.Append({bytes + begin, std::min<int64_t>(37, size - begin)}, values);
  }
  push.bad_entry = FirstBadEntry(
      CodedKeys::Plain(Codec(), push.payload.size() / static_cast<int64_t>(sizeof(float))),
      push.payload);
  return push;
}

void SubnetCluster::Push(int server, uint64_t member, const SubnetPlace& place,
                         const EntryFunction& f) {
  const absl::StatusOr<PushAccepted> accepted =
      shards_[server]->Accept(Good(server, member, place, f));
  INFO(accepted.status());
  REQUIRE(accepted.ok());
  REQUIRE_FALSE(accepted->duplicate);
}

}  // namespace tessera
