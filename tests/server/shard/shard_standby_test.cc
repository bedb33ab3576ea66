// A shard that does again what another one has done: the sum of an update's pushes is read where it was
// received.
#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <random>
#include <utility>
#include <variant>
#include <vector>

#include "common/codec/payload.h"
#include "common/consistency/barrier.h"
#include "common/rule/adam.h"
#include "common/rule/add.h"
#include "server/shard/log/shard_follower.h"
#include "server/shard/log/shard_recorder.h"
#include "server/shard/shard_event.h"
#include "tests/server/shard/shard_fixture.h"

namespace tessera {
namespace {

// 2 blocks of 1 MiB and a rest.
constexpr int64_t kRows = 500;
constexpr int64_t kColumns = 1201;

// As it comes over the network: in pieces that end anywhere, also within a value.
Payload InPieces(const Payload& whole, std::mt19937* random) {
  auto bytes = std::make_shared<std::vector<char>>();
  for (const Payload::Piece& piece : whole.pieces()) {
    bytes->insert(bytes->end(), piece.data, piece.data + piece.size);
  }
  Payload pieces;
  const int64_t size = static_cast<int64_t>(bytes->size());
  for (int64_t begin = 0; begin < size;) {
    const int64_t taken = std::min<int64_t>(size - begin, 1 + (*random)() % 100000);
    pieces.Append({bytes->data() + begin, taken}, bytes);
    begin += taken;
  }
  return pieces;
}

TEST_CASE("a standby that is told of sums has the bits of its leader, with readers at work",
          "[shard][standby]") {
  const bool has_state = GENERATE(false, true);
  const auto rule = [&] {
    return has_state ? MakeAdam({0.05, 0.9, 0.999, 1e-8, 0.01, false}) : MakeAdd();
  };
  const ModelShape shape = ZeroMatrix(kRows, kColumns);
  ShardFixture leader(shape, MakeBarrier(), rule());
  ShardFixture standby(shape, MakeBarrier(), rule());
  ShardRecorder recorder(&leader.shard);
  ShardFollower follower(&standby.shard);
  leader.shard.SetPlan(PlanOfFirst(2));
  REQUIRE(follower.Apply(PlanEvent{PlanOfFirst(2)}).ok());
  recorder.Record(true);
  std::mt19937 random(3);
  for (uint64_t exchange = 1; exchange <= 4; ++exchange) {
    for (const uint64_t member : {2, 1}) {
      std::vector<float> update(kRows * kColumns);
      for (float& x : update) x = static_cast<float>(random()) / 4294967296.0f - 0.5f;
      leader.MustPush(member, exchange, update);
    }
    const ReadResult held = exchange % 2 == 0 ? standby.shard.ReadNow() : ReadResult();
    for (ShardEvent& event : recorder.TakeRecords()) {
      if (auto* const commit = std::get_if<CommitEvent>(&event)) {
        commit->sum = InPieces(commit->sum, &random);
      }
      REQUIRE(follower.Apply(std::move(event)).ok());
    }
    REQUIRE(standby.version() == exchange);
    REQUIRE(standby.shard.ParametersHash() == leader.shard.ParametersHash());
  }
  // It goes on by itself, state included, whose update is collected and not read.
  recorder.Record(false);
  for (ShardFixture* const s : {&leader, &standby}) {
    for (const uint64_t member : {1, 2}) {
      s->MustPush(member, 5, std::vector<float>(kRows * kColumns, 0.125f));
    }
  }
  CHECK(standby.version() == 5);
  CHECK(standby.shard.ParametersHash() == leader.shard.ParametersHash());
}

TEST_CASE("a sum of another size is refused with both sizes", "[shard][standby]") {
  ShardFixture standby(ZeroMatrix(2, 3), MakeBarrier(), MakeAdd());
  ShardFollower follower(&standby.shard);
  REQUIRE(follower.Apply(PlanEvent{PlanOfFirst(1)}).ok());
  REQUIRE(follower.Apply(FoldEvent{MemberId(1), Exchange(1), Version(0), 1, {}}).ok());
  CommitEvent commit;
  commit.sum = PayloadOf({1, 2, 3, 4, 5});
  CHECK(follower.Apply(std::move(commit)).message() ==
        "log of a shard: has a sum of 20 bytes, want 24");
}

}  // namespace
}  // namespace tessera
