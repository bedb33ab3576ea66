// What a core is selected from: which values, when, and that servers and standbys agree on it.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "common/consistency/barrier.h"
#include "common/consistency/none.h"
#include "common/rule/add.h"
#include "server/core/core_agreement.h"
#include "server/shard/log/shard_follower.h"
#include "server/shard/shard.h"

namespace tessera {
namespace {

constexpr int64_t kRows = 40;
constexpr int64_t kColumns = 25;
constexpr int64_t kEntries = kRows * kColumns;

using Values = std::vector<float>;

Shard::Options OptionsOf(const CoreShare& share, std::unique_ptr<ConsistencyPolicy> policy) {
  Shard::Options options;
  ParameterSpec weight;
  weight.name = "layers.0.weight";
  weight.rows = kRows;
  weight.columns = kColumns;
  weight.initial_bound = 1;
  options.shape.parameters = {weight};
  options.shape.size = weight.size();
  options.seed = 7;
  options.policy = std::move(policy);
  options.rule = MakeAdd();
  options.core = share;
  return options;
}

Plan PlanOf(uint64_t generation, const std::vector<uint64_t>& members, uint64_t first) {
  Plan plan;
  plan.generation = Generation(generation);
  for (const uint64_t m : members) {
    plan.members.push_back({MemberId(m), Rank(m - 1), Exchange(first)});
  }
  return plan;
}

// Of all entries; `values` outlive it.
ReceivedPush PushOf(const Shard& shard, uint64_t member, uint64_t exchange, const float* values) {
  ReceivedPush push;
  push.member = MemberId(member);
  push.exchange = Exchange(exchange);
  push.layout_hash = shard.layout_hash();
  push.payload.Append({reinterpret_cast<const char*>(values), shard.slices().bytes()}, nullptr);
  return push;
}

std::vector<int64_t> Largest(const Values& s, int64_t count) {
  std::vector<int64_t> order(s.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return s[a] > s[b]; });
  order.resize(count);
  std::sort(order.begin(), order.end());
  return order;
}

TEST_CASE(
    "values weigh where a push of all entries did not come, against what it changed elsewhere",
    "[shard][core]") {
  // Every exchange is of all entries, and |g| counts as much as |w|.
  constexpr CoreShare kEachSelects{0.3, 0.1, 1, 0.0};
  CoreAgreement agreement(
      {2, 1, kEntries, static_cast<uint64_t>(CoreCount(kEachSelects, kEntries)), 0.0});
  std::vector<std::unique_ptr<Shard>> shards;
  for (uint64_t s = 0; s < 2; ++s) {
    Shard::Options options = OptionsOf(kEachSelects, MakeBarrier());
    options.shard = ShardId(s);
    options.sharding = 2;
    shards.push_back(std::make_unique<Shard>(std::move(options)));
  }
  const auto plan = [&](uint64_t generation, uint64_t member, uint64_t first) {
    for (const auto& shard : shards) {
      shard->SetPlan(PlanOf(generation, {member}, first));
    }
  };
  const auto settle = [&] {
    for (bool moved = true; moved;) {
      moved = false;
      for (const auto& shard : shards) {
        while (shard->Advance(absl::UnixEpoch())) moved = true;
        const std::optional<CoreReport> report = shard->cores()->report();
        if (!report) continue;
        for (const auto& [to, question] : agreement.OnReport(shard->slices().shard, *report)) {
          shards[to.value()]->cores()->Ask(question);
          moved = true;
        }
      }
    }
  };
  plan(1, 1, 1);
  settle();
  // Its sender is lost when only one server has the push, and somebody else goes on.
  const int64_t half = shards[0]->slices().size;
  Values s(kEntries), g(kEntries);
  for (int64_t i = 0; i < half; ++i) g[i] = 0.02f * static_cast<float>(i % 101) - 1;
  REQUIRE(shards[0]->Accept(PushOf(*shards[0], 1, 1, g.data())).ok());
  settle();
  plan(2, 2, 2);
  settle();
  double w_sum = 0, g_sum = 0;
  int64_t at = 0;
  for (const auto& shard : shards) {
    const ReadResult now = shard->ReadNow();
    for (const auto& block : now.snapshot->blocks()) {
      for (int64_t i = 0; i < block->size(); ++i) s[at++] = std::fabs(block->data()[i]);
    }
  }
  for (int64_t i = 0; i < kEntries; ++i) {
    w_sum += s[i];
    g_sum += std::fabs(g[i]);
  }
  for (int64_t i = 0; i < kEntries; ++i) {
    s[i] += static_cast<float>(w_sum / g_sum) * std::fabs(g[i]);
  }
  std::vector<int64_t> core;
  for (const auto& shard : shards) {
    REQUIRE(shard->cores()->cores() == 2);
    const int64_t before = shard->slices().shard == ShardId(0) ? 0 : half;
    for (const int64_t place : shard->cores()->core()->keys.places()) {
      core.push_back(before + place);
    }
  }
  CHECK(core == Largest(s, CoreCount(kEachSelects, kEntries)));
}

TEST_CASE("what was saved is a core or what one is selected from, however long cores are for now",
          "[shard][core]") {
  struct Case {
    uint64_t saved_every, every;
    bool is_gradient;
    uint64_t core;  // of the next exchange, by `every`
  };
  // Exchange 6 pushed all entries where a core was for 2 or 3, and not where it was for 4 or 5.
  const Case c = GENERATE(Case{2, 5, true, 1}, Case{3, 2, true, 3}, Case{4, 3, false, 2},
                          Case{5, 4, false, 1}, Case{0, 3, true, 2}, Case{0, 5, false, 1});
  CAPTURE(c.saved_every, c.every);
  const CoreShare share{0.3, 0.1, c.every, 2.0};
  const auto shard = std::make_unique<Shard>(OptionsOf(share, MakeBarrier()));
  Values w(kEntries), saved(kEntries), significance(kEntries);
  for (int64_t i = 0; i < kEntries; ++i) {
    w[i] = 0.01f * static_cast<float>(i % 37);
    const float g = 0.02f * static_cast<float>(i % 101) - 1;
    saved[i] = c.is_gradient ? g : static_cast<float>(i % 10 == 3);
    significance[i] = std::fabs(w[i]) + 2 * std::fabs(g);
  }
  SavedShard from;
  from.read_rows = [&](int, int state, int64_t begin, int64_t end, float* out) {
    std::copy_n((state < 0 ? w : saved).data() + begin * kColumns, (end - begin) * kColumns, out);
    return absl::OkStatus();
  };
  from.exchange = Exchange(6);
  from.core_every = c.saved_every;
  REQUIRE(shard->Load(from).ok());
  CHECK(shard->cores()->selecting().has_value() == c.is_gradient);
  CoreAgreement agreement(
      {1, 1, kEntries, static_cast<uint64_t>(CoreCount(share, kEntries)), share.gradient_weight});
  while (shard->cores()->selecting().has_value()) {
    while (shard->cores()->AdvanceSelection()) {
    }
    for (const auto& [to, question] : agreement.OnReport(ShardId(0), *shard->cores()->report())) {
      shard->cores()->Ask(question);
    }
  }
  REQUIRE(shard->cores()->core() != nullptr);
  CHECK(shard->cores()->core()->name.number == c.core);
  CHECK(shard->cores()->core()->keys.places() ==
        Largest(c.is_gradient ? significance : saved, CoreCount(share, kEntries)));
}

TEST_CASE("a standby begins the selections that its leader begins, whenever either does the work",
          "[shard][core]") {
  constexpr CoreShare kShare{0.3, 0.1, 3, 2.0};
  const auto leader = std::make_unique<Shard>(OptionsOf(kShare, MakeNone(0.5f)));
  const auto standby = std::make_unique<Shard>(OptionsOf(kShare, MakeNone(0.5f)));
  ShardFollower follower(standby.get());
  const auto work = [&] {
    while (leader->Advance(absl::UnixEpoch())) {
    }
  };
  const auto plan = [&](uint64_t generation, const std::vector<uint64_t>& members) {
    const Plan next = PlanOf(generation, members, 1);
    leader->SetPlan(next);
    REQUIRE(follower.Apply(PlanEvent{next}).ok());
  };
  plan(1, {1, 2});
  work();
  // Member 1 pushes all entries before there is a core, and member 2 begins.
  const Values ones(kEntries, 1);
  for (const auto& [member, exchange] : {std::pair{1, 1}, {2, 1}, {1, 2}, {1, 3}}) {
    REQUIRE(leader->Accept(PushOf(*leader, member, exchange, ones.data())).ok());
    work();
    REQUIRE(follower.Apply(PushEvent{PushOf(*leader, member, exchange, ones.data())}).ok());
    REQUIRE(follower.Apply(AdvanceEvent{absl::UnixEpoch()}).ok());
  }
  CoreAgreement agreement(
      {1, 1, kEntries, static_cast<uint64_t>(CoreCount(kShare, kEntries)), 2.0});
  CoreStage last = CoreStage::kSums;
  while (last != CoreStage::kDone) {
    // The leader has work left when the next thing comes.
    work();
    for (const auto& [to, question] : agreement.OnReport(ShardId(0), *leader->cores()->report())) {
      leader->cores()->Ask(question);
      REQUIRE(follower.Apply(CoreQuestionEvent{question}).ok());
      last = question.stage;
    }
  }
  // Nobody is left who has yet to push all entries: the next core is of the values that there are.
  plan(2, {1});
  work();
  REQUIRE(follower.Apply(RestEvent{}).ok());
  const std::optional<CoreReport> report = standby->cores()->report();
  REQUIRE(report);
  CHECK(report->core == 1);
  REQUIRE(leader->cores()->report());
  CHECK(leader->cores()->report()->core == 1);
  CHECK(leader->cores()->core()->name == standby->cores()->core()->name);
}

}  // namespace
}  // namespace tessera
