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
  options.policy = MakeQuorum({3, absl::Seconds(1)});
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

// A shard of one number that members 1 and 2 push to in lockstep.
std::unique_ptr<ServedShard> ServedForTwo() {
  Shard::Options options;
  options.shape = ZeroMatrix(1, 1);
  options.policy = MakeQuorum({2, absl::Seconds(1)});
  options.rule = MakeAdd();
  auto served = std::make_unique<ServedShard>(std::make_unique<Shard>(std::move(options)));
  served->SetPlan(PlanOfFirst(2));
  return served;
}

TEST_CASE("the model is read outside an exchange by members alone", "[shard][served][strangers]") {
  const std::unique_ptr<ServedShard> served = ServedForTwo();
  const auto read = [&](uint64_t member) {
    absl::Status status = absl::UnknownError("not answered");
    served->ReadOutside(MemberId(member), Exchange(0), IdleNotice(), absl::UnixEpoch(),
                        [&status](const auto& result) { status = result.status(); });
    return status;
  };
  CHECK(read(2).ok());
  CHECK(absl::IsFailedPrecondition(read(3)));
  CHECK(read(3).message() ==
        "pull from member 3: not a member of the current plan (generation 1); its lease has ended, "
        "or it never joined");
  served->SetPlan(PlanOf(2, {{1, 1}}));
  CHECK(absl::IsFailedPrecondition(read(2)));
}

TEST_CASE("a word of rest that is far ahead of a member's numbers is not believed",
          "[shard][served][strangers]") {
  const std::unique_ptr<ServedShard> served = ServedForTwo();
  const auto say = [&](uint64_t number, bool rests) {
    served->Read<int>(
        1, MemberId(1), Exchange(0), {number, rests},
        []() -> absl::StatusOr<std::optional<int>> { return 1; }, [](absl::StatusOr<int>) {});
    return served->shard().members().states().at(MemberId(1)).rest_number;
  };
  CHECK(say(1, true) == 1);
  CHECK(say(~uint64_t{0}, true) == 1);
  CHECK(say(~uint64_t{0}, false) == 1);
  CHECK(say(1, false) == 1);
  CHECK(say(2, true) == 2);
  CHECK(say(2 + ShardMembers::kRestsAheadMax, true) == 2 + ShardMembers::kRestsAheadMax);
}

}  // namespace
}  // namespace tessera
