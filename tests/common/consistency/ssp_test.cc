#include "common/consistency/ssp.h"

#include <catch2/catch.hpp>

#include "tests/common/consistency/policy_fixture.h"

namespace tessera {
namespace {

using Members = std::vector<uint64_t>;

struct BoundTwo : PolicyFixture {
  BoundTwo() : PolicyFixture(MakeSsp(2, 0.25f)) {}
};

struct BoundZero : PolicyFixture {
  BoundZero() : PolicyFixture(MakeSsp(0, 0.5f)) {}
};

TEST_CASE_METHOD(BoundTwo, "ssp commits every push with its weight", "[consistency][ssp]") {
  Plan({{1, 1}, {2, 1}});
  const Verdict verdict = Push(1, 1);
  CHECK(verdict.commit);
  CHECK(verdict.weight == 0.25f);
  CHECK(verdict.commit_scale == 1.0f);
  CHECK(policy_->Collecting() == Exchange(0));
}

TEST_CASE_METHOD(BoundTwo, "a worker reads until it is more than the bound ahead",
                 "[consistency][ssp]") {
  Plan({{1, 1}, {2, 1}});
  Push(1, 1);
  CHECK(MayRead(1, 1));
  Push(1, 2);
  CHECK(MayRead(1, 2));
  CHECK(WaitsFor().empty());
  Push(1, 3);
  CHECK_FALSE(MayRead(1, 3));
  CHECK(WaitsFor() == Members{2});
  Push(2, 1);
  CHECK(MayRead(1, 3));
  CHECK(MayRead(2, 1));
}

TEST_CASE_METHOD(BoundZero, "with bound 0 everybody waits for everybody", "[consistency][ssp]") {
  Plan({{1, 1}, {2, 1}, {3, 1}});
  Push(1, 1);
  Push(3, 1);
  CHECK_FALSE(MayRead(1, 1));
  CHECK_FALSE(MayRead(3, 1));
  CHECK(MayRead(2, 0));
  CHECK(WaitsFor() == Members{2});
  Push(2, 1);
  CHECK(MayRead(1, 1));
  CHECK(MayRead(2, 1));
  CHECK(MayRead(3, 1));
}

TEST_CASE_METHOD(BoundZero, "a removed member's clock stops counting", "[consistency][ssp]") {
  Plan({{1, 1}, {2, 1}});
  Push(1, 1);
  CHECK_FALSE(MayRead(1, 1));
  Plan({{1, 1}});
  CHECK(MayRead(1, 1));
}

TEST_CASE_METHOD(BoundZero, "nobody waits for a member that rests, until it wakes",
                 "[consistency][ssp]") {
  Plan({{1, 1}, {2, 1}});
  Rest(2);
  Push(1, 1);
  CHECK(MayRead(1, 1));
  CHECK(WaitsFor().empty());
  Wake(2);
  CHECK_FALSE(MayRead(1, 1));
  CHECK(WaitsFor() == Members{2});
}

TEST_CASE_METHOD(BoundZero, "a member that rests waits for the slower ones itself",
                 "[consistency][ssp]") {
  Plan({{1, 1}, {2, 1}});
  Push(1, 1);
  Rest(1);
  CHECK_FALSE(MayRead(1, 1));
  CHECK(WaitsFor() == Members{2});
  Rest(2);
  CHECK(MayRead(1, 1));
  CHECK(MayRead(2, 0));
}

TEST_CASE_METHOD(BoundZero, "a push ends a rest", "[consistency][ssp]") {
  Plan({{1, 1}, {2, 1}});
  Push(1, 1);
  Push(2, 1);
  Rest(1);
  Rest(2);
  Push(1, 2);
  CHECK(MayRead(1, 2));
  Push(2, 2);
  Push(2, 3);
  CHECK_FALSE(MayRead(2, 3));
  CHECK(WaitsFor() == Members{1});
}

TEST_CASE_METHOD(BoundTwo, "a late joiner starts at the least clock", "[consistency][ssp]") {
  Plan({{1, 1}, {2, 1}});
  CHECK(FirstExchange(1) == 1);
  for (uint64_t exchange = 1; exchange <= 5; ++exchange) {
    Push(1, exchange);
    Push(2, exchange);
  }
  Push(1, 6);
  CHECK(FirstExchange(1) == 6);
  CHECK(FirstExchange(9) == 9);
  Plan({{1, 1}, {2, 1}, {3, 6}});
  CHECK(MayRead(3, 5));
  Push(2, 6);
  Push(2, 7);
  CHECK(MayRead(2, 7));
  Push(2, 8);
  CHECK_FALSE(MayRead(2, 8));
  CHECK(WaitsFor() == Members{3});
  Push(3, 6);
  CHECK(MayRead(2, 8));
}

TEST_CASE_METHOD(BoundTwo, "the clocks of those that rest do not place a joiner, if others are up",
                 "[consistency][ssp]") {
  Plan({{1, 1}, {2, 1}});
  Push(1, 1);
  Push(1, 2);
  Rest(2);
  CHECK(FirstExchange(1) == 3);
  Rest(1);
  CHECK(FirstExchange(1) == 1);
}

TEST_CASE_METHOD(BoundTwo, "an empty plan holds nobody", "[consistency][ssp]") {
  CHECK(FirstExchange(4) == 4);
  CHECK(WaitsFor().empty());
  Plan({{1, 1}});
  Push(1, 1);
  Plan({});
  CHECK(FirstExchange(1) == 1);
  CHECK(MayRead(1, 1));
  CHECK(WaitsFor().empty());
  CHECK_FALSE(CommitDue().has_value());
}

TEST_CASE_METHOD(BoundZero, "a plan keeps the clocks and rests of those that stay",
                 "[consistency][ssp]") {
  Plan({{1, 1}, {2, 1}, {3, 1}});
  Push(1, 1);
  Push(2, 1);
  Rest(3);
  CHECK(MayRead(1, 1));
  Plan({{1, 1}, {3, 1}});
  CHECK(MayRead(1, 1));
  Wake(3);
  CHECK_FALSE(MayRead(1, 1));
}

}  // namespace
}  // namespace tessera
