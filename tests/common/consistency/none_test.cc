#include "common/consistency/none.h"

#include <catch2/catch.hpp>

#include "tests/common/consistency/policy_fixture.h"

namespace tessera {
namespace {

struct Quarter : PolicyFixture {
  Quarter() : PolicyFixture(MakeNone(0.25f)) {}
};

struct Inverse : PolicyFixture {
  Inverse() : PolicyFixture(MakeNone({StalenessWeight::Kind::kInverse, 0.5f, 1})) {}
};

TEST_CASE_METHOD(Quarter, "without consistency every push commits at once with its weight",
                 "[consistency][none]") {
  Plan({{1, 1}, {2, 1}});
  for (uint64_t tau = 0; tau < 4; ++tau) {
    const Verdict verdict = Late(2, tau);
    CHECK(verdict.commit);
    CHECK(verdict.weight == 0.25f);
    CHECK(verdict.commit_scale == 1.0f);
  }
}

TEST_CASE_METHOD(Inverse, "an inverse weight counts from the version that was pulled",
                 "[consistency][none]") {
  Plan({{1, 1}});
  CHECK(Late(1, 0).weight == 0.5f);
  CHECK(Late(1, 1).weight == 0.5f);
  CHECK(Late(1, 4).weight == 0.125f);
}

TEST_CASE_METHOD(Quarter, "without consistency nobody waits and no order holds",
                 "[consistency][none]") {
  Plan({{1, 1}});
  CHECK(MayRead(1, 1000));
  CHECK(WaitsFor().empty());
  CHECK_FALSE(policy_->NextInOrder().has_value());
  CHECK_FALSE(CommitDue().has_value());
  CHECK(Deadline() == -1);
  CHECK(policy_->Collecting() == Exchange(0));
}

}  // namespace
}  // namespace tessera
