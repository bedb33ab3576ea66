#include "common/consistency/none.h"

#include <catch2/catch.hpp>

namespace tessera {
namespace {

TEST_CASE("without consistency every push commits at once with its weight", "[consistency][none]") {
  const std::unique_ptr<ConsistencyPolicy> policy = MakeNone(0.25f);
  policy->SetMembers(
      {Generation(1), {{MemberId(1), Rank(0), Exchange(1)}, {MemberId(2), Rank(1), Exchange(1)}}});
  for (uint64_t exchange = 1; exchange < 4; ++exchange) {
    const Verdict verdict =
        policy->OnPush({MemberId(2), Exchange(exchange), Version(0), Version(exchange)});
    CHECK(verdict.commit);
    CHECK(verdict.weight == 0.25f);
    CHECK(verdict.commit_scale == 1.0f);
  }
}

TEST_CASE("without consistency nobody waits and no order holds", "[consistency][none]") {
  const std::unique_ptr<ConsistencyPolicy> policy = MakeNone(1.0f);
  policy->SetMembers({Generation(1), {{MemberId(1), Rank(0), Exchange(1)}}});
  CHECK(policy->MayRead(MemberId(1), Exchange(1000)));
  CHECK(policy->WaitsFor().empty());
  CHECK_FALSE(policy->NextInOrder().has_value());
  CHECK_FALSE(policy->CommitDue().has_value());
  CHECK(policy->Collecting() == Exchange(0));
}

}  // namespace
}  // namespace tessera
