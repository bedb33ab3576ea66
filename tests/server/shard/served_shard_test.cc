// A shard whose events come one by one, with work between them or not.
#include "server/shard/served_shard.h"

#include <catch2/catch.hpp>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/consistency/quorum.h"
#include "common/rule/add.h"
#include "tests/server/shard/shard_fixture.h"

namespace tessera {
namespace {

TEST_CASE("what is whole without a lost member is committed before those who rested are awake",
          "[shard][served]") {
  const absl::Time now = absl::UnixEpoch();
  Shard::Options options;
  options.shape = ZeroMatrix(1, 1);
  options.policy = MakeQuorum(3, absl::Seconds(1));
  options.rule = MakeAdd();
  ServedShard served(std::make_unique<Shard>(std::move(options)));
  served.SetPlan(PlanOfFirst(3));
  for (const uint64_t m : {1, 2}) {
    ReceivedPush push;
    push.member = MemberId(m);
    push.exchange = Exchange(1);
    push.layout_hash = served.shard().layout_hash();
    push.payload = PayloadOf({4});
    served.Accept(std::move(push),
                  [](const absl::StatusOr<PushAccepted>& accepted) { REQUIRE(accepted.ok()); });
    served.Read<int>(
        m, MemberId(m), Exchange(1), {1, /*rests=*/true},
        []() -> absl::StatusOr<std::optional<int>> { return 1; }, [](absl::StatusOr<int>) {});
  }
  while (served.Work(/*had_events=*/true, now)) {
  }
  REQUIRE(served.shard().counters().version == Version(0));
  // Member 3 is lost, and an evaluation begins before there was time for work.
  served.SetPlan(PlanOf(2, {{1, 1}, {2, 1}}));
  for (const uint64_t m : {1, 2}) {
    std::optional<ReadResult> read;
    served.ReadOutside(MemberId(m), Exchange(1), {1, /*rests=*/false}, now,
                       [&read](const absl::StatusOr<ReadResult>& result) { read = *result; });
    REQUIRE(read.has_value());
    CHECK(read->version == Version(1));
    CHECK(ValuesOf(*read->snapshot) == std::vector<float>{4});
  }
}

}  // namespace
}  // namespace tessera
