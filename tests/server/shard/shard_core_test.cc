// A shard whose exchanges move a core and explorers.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "common/consistency/barrier.h"
#include "common/consistency/none.h"
#include "common/rule/add.h"
#include "server/core/core_agreement.h"
#include "server/shard/shard.h"

namespace tessera {
namespace {

constexpr int64_t kRows = 40;
constexpr int64_t kColumns = 25;
constexpr int64_t kEntries = kRows * kColumns;
constexpr CoreShare kShare{0.3, 0.1, 3, 2.0};

ModelShape OneMatrix() {
  ModelShape shape;
  ParameterSpec weight;
  weight.name = "layers.0.weight";
  weight.rows = kRows;
  weight.columns = kColumns;
  weight.initial_bound = 1;
  shape.parameters = {weight};
  shape.size = weight.size();
  return shape;
}

using Values = std::vector<float>;

// Those of a read of a core and an explorer.
const EntrySet& EntriesOf(const ReadResult& read) {
  return static_cast<const SparsePlace&>(*read.entries).keys().entries;
}

// One shard, two members and the coordinator's part.
class CoreShard {
 public:
  explicit CoreShard(bool lockstep, double gradient_weight = kShare.gradient_weight)
      : agreement_(
            {1, 1, kEntries, static_cast<uint64_t>(CoreCount(kShare, kEntries)), gradient_weight}) {
    Shard::Options options;
    options.shape = OneMatrix();
    options.seed = 7;
    options.policy = lockstep ? MakeBarrier() : MakeNone(0.5f);
    options.rule = MakeAdd();
    options.core = kShare;
    shard_.emplace(std::move(options));
    SetMembers({1, 2});
  }

  void SetMembers(const std::vector<uint64_t>& members) {
    Plan plan;
    plan.generation = Generation(++plan_);
    for (const uint64_t m : members) {
      plan.members.push_back({MemberId(m), Rank(m - 1), Exchange(1)});
    }
    shard_->SetPlan(plan);
    Settle();
  }

  // Does all that is due, the selection of a core included.
  void Settle() {
    uint64_t told = 0;
    for (bool moved = true; moved;) {
      moved = false;
      while (shard_->Advance(absl::UnixEpoch())) moved = true;
      const CoreExchange& cores = *shard_->cores();
      if (!cores.report().has_value() || cores.report_number() == told) continue;
      told = cores.report_number();
      for (const auto& [to, question] : agreement_.OnReport(ShardId(0), *cores.report())) {
        shard_->cores()->Ask(question);
        moved = true;
      }
    }
  }

  std::shared_ptr<const Core> core() { return shard_->cores()->core(); }

  EntrySet EntriesOf(uint64_t member, uint64_t exchange, std::shared_ptr<const Core> core) const {
    const ExplorerPlace place{7, Rank(member - 1), Exchange(exchange), ShardId(0)};
    return DrawKeys(kShare, place, kEntries, std::move(core)).entries;
  }

  ReceivedPush PushOf(uint64_t member, uint64_t exchange, const Values& values) {
    ReceivedPush push;
    push.member = MemberId(member);
    push.exchange = Exchange(exchange);
    push.layout_hash = shard_->layout_hash();
    const auto owned = std::make_shared<const Values>(values);
    push.payload.Append({reinterpret_cast<const char*>(owned->data()),
                         static_cast<int64_t>(owned->size() * sizeof(float))},
                        owned);
    return push;
  }
  ReceivedPush SparseOf(uint64_t member, uint64_t exchange, const std::shared_ptr<const Core>& of,
                        float value) {
    ReceivedPush push =
        PushOf(member, exchange, Values(EntriesOf(member, exchange, of).count(), value));
    push.keys = NamedCore{of->name, 0, std::nullopt};
    return push;
  }

  absl::StatusOr<std::optional<ReadResult>> Read(uint64_t member, uint64_t after,
                                                 const CoreName& core) {
    return shard_->Read(MemberId(member), Exchange(after), NamedCore{core, 0, std::nullopt});
  }
  absl::StatusOr<PushAccepted> Accept(ReceivedPush push) {
    absl::StatusOr<PushAccepted> accepted = shard_->Accept(std::move(push));
    Settle();
    return accepted;
  }
  void Push(ReceivedPush push) {
    const absl::StatusOr<PushAccepted> accepted = Accept(std::move(push));
    INFO(accepted.status());
    REQUIRE(accepted.ok());
    REQUIRE_FALSE(accepted->need_keys);
  }

  Values Now() {
    Values values;
    const ReadResult read = shard_->ReadNow();
    for (const auto& block : read.snapshot->blocks()) {
      values.insert(values.end(), block->data(), block->data() + block->size());
    }
    return values;
  }
  Shard& shard() { return *shard_; }

 private:
  CoreAgreement agreement_;
  std::optional<Shard> shard_;
  uint64_t plan_ = 0;
};

std::vector<int64_t> Largest(const Values& s, int64_t count) {
  std::vector<int64_t> order(s.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return s[a] > s[b]; });
  order.resize(count);
  std::sort(order.begin(), order.end());
  return order;
}

bool Says(const absl::Status& status, absl::StatusCode code, const std::string& words) {
  INFO(status);
  return status.code() == code && absl::StrContains(status.message(), words);
}

TEST_CASE("the first core are the largest initial values", "[shard][core]") {
  CoreShard shard(/*lockstep=*/true);
  Values s = shard.Now();
  for (float& value : s) value = std::fabs(value);
  REQUIRE(shard.core() != nullptr);
  CHECK(shard.core()->name.number == 0);
  CHECK(shard.core()->keys.places() == Largest(s, 100));
}

TEST_CASE("an entry moves by the sum of what was sent of it over the number of pushes",
          "[shard][core]") {
  CoreShard shard(/*lockstep=*/true);
  const Values before = shard.Now();
  const EntrySet one = shard.EntriesOf(1, 1, shard.core());
  const EntrySet two = shard.EntriesOf(2, 1, shard.core());
  CHECK(one.count() == 300);
  CHECK_FALSE(one == two);
  shard.Push(shard.SparseOf(1, 1, shard.core(), 1));
  CHECK(shard.Now() == before);
  shard.Push(shard.SparseOf(2, 1, shard.core(), 3));
  const Values after = shard.Now();
  for (int64_t i = 0; i < kEntries; ++i) {
    const float sum = (one.Contains(i) ? 1.0f : 0.0f) + (two.Contains(i) ? 3.0f : 0.0f);
    REQUIRE(after[i] == before[i] + 0.5f * sum);
  }
  // What is read is what was pushed of.
  const auto read = shard.Read(1, 1, shard.core()->name);
  REQUIRE(read.ok());
  REQUIRE(read->has_value());
  CHECK(EntriesOf(**read) == one);
}

TEST_CASE("all entries are welcome in any exchange, beside those of others", "[shard][core]") {
  CoreShard shard(/*lockstep=*/true);
  const Values before = shard.Now();
  const EntrySet one = shard.EntriesOf(1, 1, shard.core());
  shard.Push(shard.SparseOf(1, 1, shard.core(), 1));
  shard.Push(shard.PushOf(2, 1, Values(kEntries, 3)));
  const Values after = shard.Now();
  for (int64_t i = 0; i < kEntries; ++i) {
    REQUIRE(after[i] == before[i] + 0.5f * (3.0f + (one.Contains(i) ? 1.0f : 0.0f)));
  }
  // The next core is not selected before its time.
  CHECK(shard.core()->name.number == 0);
}

TEST_CASE("after a full push the core is selected from values and changes", "[shard][core]") {
  CoreShard shard(/*lockstep=*/true);
  for (uint64_t e = 1; e <= 2; ++e) {
    for (const uint64_t member : {1, 2}) shard.Push(shard.SparseOf(member, e, shard.core(), 0.7f));
  }
  const std::shared_ptr<const Core> first = shard.core();
  CHECK(first->name.number == 0);
  Values change(kEntries), other(kEntries);
  for (int64_t i = 0; i < kEntries; ++i) change[i] = static_cast<float>(i % 7) - 3;
  for (int64_t i = 0; i < kEntries; ++i) other[i] = static_cast<float>(i % 5) - 2;
  const Values before = shard.Now();
  shard.Push(shard.PushOf(1, 3, change));
  CHECK(shard.core() == first);
  shard.Push(shard.PushOf(2, 3, other));
  const Values after = shard.Now();
  Values s(kEntries);
  for (int64_t i = 0; i < kEntries; ++i) {
    const float g = 0.5f * (change[i] + other[i]);
    REQUIRE(after[i] == before[i] + g);
    s[i] = std::fabs(after[i]) + 2.0f * std::fabs(g);
  }
  REQUIRE(shard.core()->name.number == 1);
  CHECK(shard.core()->keys.places() == Largest(s, 100));
  // The pull behind the full push is on the old core.
  const auto read = shard.Read(2, 3, first->name);
  REQUIRE((*read)->entries != nullptr);
  CHECK(EntriesOf(**read) == shard.EntriesOf(2, 3, first));
}

TEST_CASE("a core is selected from the last exchange before it, whoever pushed all entries earlier",
          "[shard][core]") {
  CoreShard shard(/*lockstep=*/true);
  // Largest where the values and the last changes are not.
  Values early(kEntries);
  for (int64_t i = 0; i < kEntries; ++i) early[i] = i % 9 == 4 ? 50.0f : 0.0f;
  shard.Push(shard.PushOf(1, 1, early));
  shard.Push(shard.SparseOf(2, 1, shard.core(), 0.7f));
  for (float& value : early) value = -value;
  for (const uint64_t member : {1, 2}) {
    shard.Push(member == 1 ? shard.PushOf(1, 2, early) : shard.SparseOf(2, 2, shard.core(), 0.7f));
  }
  CHECK(shard.core()->name.number == 0);
  // Twice, as the second selection has a gradient of its own.
  for (const uint64_t number : {1, 2}) {
    Values change(kEntries), other(kEntries), s(kEntries);
    for (int64_t i = 0; i < kEntries; ++i) change[i] = static_cast<float>(i % (6 + number)) - 3;
    for (int64_t i = 0; i < kEntries; ++i) other[i] = static_cast<float>(i % 5) - 2;
    if (number == 2) {
      shard.Push(shard.PushOf(1, 4, early));
      shard.Push(shard.PushOf(2, 4, early));
      for (const uint64_t member : {1, 2}) {
        shard.Push(shard.SparseOf(member, 5, shard.core(), 0.3f));
      }
    }
    shard.Push(shard.PushOf(1, 3 * number, change));
    shard.Push(shard.PushOf(2, 3 * number, other));
    const Values now = shard.Now();
    for (int64_t i = 0; i < kEntries; ++i) {
      s[i] = std::fabs(now[i]) + 2.0f * std::fabs(0.5f * (change[i] + other[i]));
    }
    REQUIRE(shard.core()->name.number == number);
    CHECK(shard.core()->keys.places() == Largest(s, 100));
  }
}

TEST_CASE("a push of another core than the exchange's is refused, and of other entries",
          "[shard][core]") {
  CoreShard shard(/*lockstep=*/true);
  const Values before = shard.Now();
  const auto stale =
      std::make_shared<const Core>(Core{{1, shard.core()->name.signature}, shard.core()->keys});
  const auto refused = [&](ReceivedPush push) { return shard.Accept(std::move(push)).status(); };
  CHECK(Says(refused(shard.SparseOf(1, 1, stale, 1)), absl::StatusCode::kFailedPrecondition,
             "core is 1, want 0"));
  ReceivedPush short_one = shard.PushOf(1, 1, Values(299));
  short_one.keys = NamedCore{shard.core()->name, 0, std::nullopt};
  CHECK(Says(refused(std::move(short_one)), absl::StatusCode::kInvalidArgument,
             "payload is 1196 bytes, want 1200 (300 entries as f32)"));
  // The same number with other keys: these are asked for, and refused.
  auto forged = std::make_shared<Core>(Core{shard.core()->name, shard.core()->keys});
  forged->name.signature.low ^= 1;
  CHECK(shard.Accept(shard.SparseOf(1, 1, forged, 1))->need_keys);
  ReceivedPush with_keys = shard.SparseOf(1, 1, forged, 1);
  const EncodedKeys keys = EncodeKeys(forged->keys);
  with_keys.keys = NamedCore{forged->name, static_cast<int>(keys.form), keys.bytes};
  CHECK(Says(refused(std::move(with_keys)), absl::StatusCode::kFailedPrecondition,
             "core 0 has other keys here"));
  CHECK(shard.Now() == before);
  CHECK(shard.shard().counters().pushes == 0);
  CHECK(shard.shard().counters().staged_bytes == 0);
}

TEST_CASE("a core is selected by the values that there are, also where others have pushed since",
          "[shard][core]") {
  // The changes weigh as much as the values, all together.
  CoreShard shard(/*lockstep=*/false, /*gradient_weight=*/0);
  const std::shared_ptr<const Core> first = shard.core();
  shard.Push(shard.SparseOf(2, 1, first, 0.1f));
  for (uint64_t e = 1; e <= 2; ++e) shard.Push(shard.SparseOf(1, e, first, 0.1f));
  Values g(kEntries);
  for (int64_t i = 0; i < kEntries; ++i) g[i] = static_cast<float>(i % 11) - 5;
  shard.Push(shard.PushOf(1, 3, g));
  // Member 2 moves the values, and goes before it has pushed all entries.
  shard.Push(shard.SparseOf(2, 2, first, 100));
  CHECK(shard.core() == first);
  const Values w = shard.Now();
  shard.SetMembers({1});
  double w_sum = 0, g_sum = 0;
  for (int64_t i = 0; i < kEntries; ++i) {
    g[i] *= 0.5f;
    w_sum += std::abs(static_cast<double>(w[i]));
    g_sum += std::abs(static_cast<double>(g[i]));
  }
  const auto c = static_cast<float>(w_sum / g_sum);
  Values s(kEntries);
  for (int64_t i = 0; i < kEntries; ++i) s[i] = std::abs(w[i]) + c * std::abs(g[i]);
  REQUIRE(shard.core()->name.number == 1);
  CHECK(shard.core()->keys.places() == Largest(s, CoreCount(kShare, kEntries)));
}

TEST_CASE("where nobody waits an old core's keys are asked for and taken", "[shard][core]") {
  CoreShard shard(/*lockstep=*/false);
  const std::shared_ptr<const Core> first = shard.core();
  // Member 2 makes its full push, and member 1 has yet to: no core is selected without it.
  shard.Push(shard.SparseOf(1, 1, first, 0.1f));
  for (uint64_t e = 1; e <= 2; ++e) shard.Push(shard.SparseOf(2, e, first, 0.1f));
  shard.Push(shard.PushOf(2, 3, Values(kEntries, 0.5f)));
  CHECK(shard.core() == first);
  shard.SetMembers({2});
  CHECK(shard.core()->name.number == 1);
  for (uint64_t e = 4; shard.core()->name.number < 5; ++e) {
    Values change(kEntries);
    for (int64_t i = 0; i < kEntries; ++i) change[i] = static_cast<float>((i * e) % 11) - 5;
    shard.Push(e % 3 == 0 ? shard.PushOf(2, e, change) : shard.SparseOf(2, e, shard.core(), 0.1f));
  }
  CHECK_FALSE(shard.shard().cores()->Knows(first->name));
  CHECK(shard.shard().cores()->Knows(shard.core()->name));
  shard.SetMembers({2, 3});
  const Values before = shard.Now();
  CHECK(shard.Accept(shard.SparseOf(3, 1, first, 1))->need_keys);
  CHECK(shard.Now() == before);
  CHECK((*shard.Read(3, 0, first->name))->entries == nullptr);

  const auto with_keys = [&](const std::string& bytes, KeyForm form) {
    ReceivedPush push = shard.SparseOf(3, 1, first, 1);
    push.keys = NamedCore{first->name, static_cast<int>(form), bytes};
    return push;
  };
  const EncodedKeys keys = EncodeKeys(first->keys);
  CHECK(Says(shard.Accept(with_keys(keys.bytes.substr(1), keys.form)).status(),
             absl::StatusCode::kInvalidArgument, "keys of core 0 are not those"));
  CHECK(Says(shard.Accept(with_keys("", KeyForm::kBitmap)).status(),
             absl::StatusCode::kInvalidArgument, "bitmap has 0 bytes, want 125"));
  shard.Push(with_keys(keys.bytes, keys.form));
  const EntrySet entries = shard.EntriesOf(3, 1, first);
  const Values after = shard.Now();
  for (int64_t i = 0; i < kEntries; ++i) {
    REQUIRE(after[i] == before[i] + (entries.Contains(i) ? 0.5f : 0.0f));
  }
  // From now on the name will do.
  shard.Push(shard.SparseOf(3, 2, first, 1));
  // A core that is still to come is nobody's.
  const auto early = std::make_shared<const Core>(Core{{9, first->name.signature}, first->keys});
  CHECK(Says(shard.Accept(shard.SparseOf(2, 100, early, 1)).status(),
             absl::StatusCode::kFailedPrecondition, "core is 9, want at most 5"));
}

TEST_CASE("keys that came with a push which was refused are not kept", "[shard][core]") {
  CoreShard shard(/*lockstep=*/false);
  const std::shared_ptr<const Core> first = shard.core();
  shard.SetMembers({2});
  for (uint64_t e = 1; shard.core()->name.number < 5; ++e) {
    shard.Push(e % 3 == 0 ? shard.PushOf(2, e, Values(kEntries, 0.5f))
                          : shard.SparseOf(2, e, shard.core(), 0.1f));
  }
  shard.SetMembers({2, 3});
  ReceivedPush push = shard.SparseOf(3, 2, first, 1);
  const EncodedKeys keys = EncodeKeys(first->keys);
  push.keys = NamedCore{first->name, static_cast<int>(keys.form), keys.bytes};
  CHECK(Says(shard.Accept(std::move(push)).status(), absl::StatusCode::kFailedPrecondition,
             "want exchange 1 next"));
  CHECK_FALSE(shard.shard().cores()->Knows(first->name));
}

TEST_CASE("a core's keys are read once it is selected, by members", "[shard][core]") {
  CoreShard shard(/*lockstep=*/true);
  const auto first = shard.shard().ReadCore(MemberId(1), 0);
  REQUIRE(first.ok());
  CHECK(**first == shard.core());
  const auto next = shard.shard().ReadCore(MemberId(1), 1);
  REQUIRE(next.ok());
  CHECK_FALSE(next->has_value());
  CHECK(absl::IsFailedPrecondition(shard.shard().ReadCore(MemberId(9), 0).status()));
}

TEST_CASE("when all members are gone the next ones have the core of their exchange",
          "[shard][core]") {
  CoreShard shard(/*lockstep=*/true);
  for (const uint64_t member : {1, 2}) shard.Push(shard.SparseOf(member, 1, shard.core(), 1));
  Plan plan;
  plan.generation = Generation(100);
  plan.members.push_back({MemberId(3), Rank(0), Exchange(8)});
  shard.shard().SetPlan(plan);
  shard.Settle();
  CHECK(shard.core()->name.number == 2);
  CHECK(shard.shard().plan().members.size() == 1);
}

}  // namespace
}  // namespace tessera
