#include "common/consistency/example_weight.h"

#include <catch2/catch.hpp>

#include "common/consistency/none.h"
#include "common/consistency/softsync.h"

namespace tessera {
namespace {

PushFacts Of(uint64_t examples, uint64_t behind = 0) {
  PushFacts push{MemberId(1), Exchange(1), Version(10 - behind), Version(10)};
  push.examples = examples;
  return push;
}

TEST_CASE("a push weighs by its examples, beside what its policy says", "[consistency]") {
  const auto alone = MakeExampleWeighted(MakeNone(StalenessWeight()), 32);
  CHECK(alone->OnPush(Of(32)).weight == 1.0f);
  CHECK(alone->OnPush(Of(8)).weight == 0.25f);
  CHECK(alone->OnPush(Of(40)).weight == 1.25f);
  CHECK(alone->OnPush(Of(8)).commit);
  const auto inverse = MakeExampleWeighted(MakeNone({StalenessWeight::Kind::kInverse, 1, 1}), 32);
  CHECK(inverse->OnPush(Of(8, 4)).weight == 0.25f * inverse->OnPush(Of(32, 4)).weight);
  CHECK(inverse->OnPush(Of(32, 4)).weight < 1);
}

TEST_CASE("nobody weighs more than the most that a member may be given, and none nothing",
          "[consistency]") {
  const auto policy = MakeExampleWeighted(MakeNone(StalenessWeight()), 32);
  CHECK(policy->OnPush(Of(~uint64_t{0})).weight == 4.0f);
  CHECK(policy->OnPush(Of(0)).weight == 1.0f / 32);
}

TEST_CASE("a mean of some pushes divides by their number, as without weights", "[consistency]") {
  const auto policy = MakeExampleWeighted(MakeSoftsync(2, StalenessWeight()), 32);
  policy->SetMembers({Generation(1), {{MemberId(1), Rank(0)}, {MemberId(2), Rank(1)}}});
  CHECK_FALSE(policy->OnPush(Of(48)).commit);
  const Verdict second = policy->OnPush(Of(16));
  CHECK((second.commit && second.weight == 0.5f && second.commit_scale == 0.5f));
}

}  // namespace
}  // namespace tessera
