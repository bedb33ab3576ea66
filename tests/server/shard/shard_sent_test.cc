// A threshold push that is an update of its own: applied where it has entries, or in a pass over all of
// them, it gives the same values.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "common/codec/threshold.h"
#include "common/codec/threshold_payload.h"
#include "common/consistency/none.h"
#include "common/rule/add.h"
#include "common/rule/rule.h"
#include "tests/server/shard/shard_fixture.h"

namespace tessera {
namespace {

using Values = std::vector<float>;

// 3 blocks of 1 MiB and a rest.
constexpr int64_t kRows = 700;
constexpr int64_t kColumns = 1201;
constexpr int64_t kEntries = kRows * kColumns;

// Add, without a word of what it keeps: every push takes a pass over all entries.
class AddToAll final : public UpdateRule {
 public:
  int state_count() const override { return 0; }
  void Apply(const Update& update, const float* u, const float* w_in, float* w_out,
             float* const* state, int64_t count) const override {
    add_->Apply(update, u, w_in, w_out, state, count);
  }

 private:
  const std::unique_ptr<UpdateRule> add_ = MakeAdd();
};

Codec PackedThreshold() { return ThresholdCodec({0, 0.002, /*packed=*/true}); }

std::unique_ptr<Shard> MakeShard(std::unique_ptr<UpdateRule> rule, float weight = 1,
                                 const SavedShard* saved = nullptr) {
  Shard::Options options;
  options.shape = ZeroMatrix(kRows, kColumns);
  options.codecs.push = PackedThreshold();
  options.policy = MakeNone(weight);
  options.rule = std::move(rule);
  auto shard = std::make_unique<Shard>(std::move(options));
  if (saved != nullptr) REQUIRE(shard->Load(*saved).ok());
  shard->SetPlan(PlanOfFirst(1));
  return shard;
}

// Sends the entries of `update` that are not 0 as `tau` with their signs.
void Push(Shard* shard, uint64_t exchange, const Values& update, float tau, bool packs) {
  Values residual(update.size());
  ThresholdEncoder encoder(tau, packs);
  encoder.Encode(update.data(), residual.data(), kEntries);
  const auto bytes = std::make_shared<const std::vector<char>>(encoder.Finish());
  ReceivedPush push;
  push.member = MemberId(1);
  push.exchange = Exchange(exchange);
  push.layout_hash = shard->layout_hash();
  push.codec = PackedThreshold();
  push.payload.Append({bytes->data(), static_cast<int64_t>(bytes->size())}, bytes);
  REQUIRE(CheckThresholdPayload(push.payload, kEntries).ok());
  REQUIRE(shard->Accept(std::move(push)).ok());
  while (shard->Advance(absl::UnixEpoch())) {
  }
}

// So many entries of [begin, end), each sent as tau or -tau.
Values Marks(int64_t begin, int64_t end, int count, float tau, std::mt19937* random) {
  Values update(kEntries);
  for (int i = 0; i < count; ++i) {
    update[begin + (*random)() % (end - begin)] = (*random)() % 2 == 0 ? tau : -tau;
  }
  return update;
}

bool SameBits(const Values& a, const Values& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST_CASE("a push applied where it has entries gives the bits of a pass over all",
          "[shard][threshold]") {
  std::mt19937 random(5);
  const auto sent = MakeShard(MakeAdd(), 0.3f), all = MakeShard(std::make_unique<AddToAll>(), 0.3f);
  const int counts[] = {0, 1, 2000, 20000, 500000, 3000, 3, 0, 1700};
  uint64_t exchange = 0;
  for (const int count : counts) {
    for (const bool packs : {false, true}) {
      CAPTURE(count, packs);
      const float tau = 0.001f * static_cast<float>(1 + random() % 1000);
      const Values update = Marks(0, kEntries, count, tau, &random);
      ++exchange;
      // Some commits find a reader that holds every block, others none.
      const ReadResult held = exchange % 3 == 0 ? ReadResult() : sent->ReadNow();
      const Values before = held.snapshot == nullptr ? Values() : ValuesOf(*held.snapshot);
      Push(sent.get(), exchange, update, tau, packs);
      Push(all.get(), exchange, update, tau, packs);
      REQUIRE(SameBits(ValuesOf(*sent->ReadNow().snapshot), ValuesOf(*all->ReadNow().snapshot)));
      if (held.snapshot != nullptr) REQUIRE(SameBits(ValuesOf(*held.snapshot), before));
    }
  }
  CHECK(sent->ParametersHash() == all->ParametersHash());
  CHECK(sent->counters().version == Version(exchange));
}

TEST_CASE("a block of which nothing is pushed stays with its readers", "[shard][threshold]") {
  std::mt19937 random(6);
  const auto shard = MakeShard(MakeAdd());
  const ReadResult before = shard->ReadNow();
  const auto& blocks = before.snapshot->blocks();
  REQUIRE(blocks.size() == 4);
  const int64_t begin = blocks[0]->size() + blocks[1]->size();
  Push(shard.get(), 1, Marks(begin, begin + blocks[2]->size(), 500, 0.5f, &random), 0.5f, false);
  const ReadResult after = shard->ReadNow();
  for (const size_t block : {0, 1, 3}) CHECK(after.snapshot->blocks()[block] == blocks[block]);
  CHECK(after.snapshot->blocks()[2] != blocks[2]);
  CHECK(shard->counters().copied_bytes_peak == blocks[2]->size() * 4);
}

// The one thing that the two ways differ in: all shards that get a push must go the same way.
TEST_CASE("-0 stays where nothing is pushed, and how a push is applied goes by its bytes",
          "[shard][threshold]") {
  for (const int marks : {100, 400000}) {
    SavedShard saved;
    saved.read_rows = [](int, int, int64_t row_begin, int64_t row_end, float* out) {
      std::fill_n(out, (row_end - row_begin) * kColumns, -0.0f);
      return absl::OkStatus();
    };
    const auto shard = MakeShard(MakeAdd(), 1, &saved);
    std::mt19937 random(7);
    const Values update = Marks(1, kEntries, marks, 0.5f, &random);
    Push(shard.get(), 1, update, 0.5f, false);
    const Values after = ValuesOf(*shard->ReadNow().snapshot);
    CHECK(after[0] == 0);
    CHECK(std::signbit(after[0]) == (marks == 100));
  }
}

}  // namespace
}  // namespace tessera
