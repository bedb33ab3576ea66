#include "common/consistency/barrier.h"

#include <catch2/catch.hpp>
#include <vector>

#include "tests/common/consistency/policy_fixture.h"

namespace tessera {
namespace {

using Members = std::vector<uint64_t>;

struct BarrierTest : PolicyFixture {
  BarrierTest() : PolicyFixture(MakeBarrier()) {}
};

struct WeightedBarrierTest : PolicyFixture {
  WeightedBarrierTest() : PolicyFixture(MakeWeightedBarrier()) {}
};

TEST_CASE_METHOD(BarrierTest, "a barrier commits with the last member's push",
                 "[consistency][barrier]") {
  Plan({{1, 1}, {2, 1}, {3, 1}});
  CHECK(policy_->Collecting() == Exchange(1));
  CHECK(MayRead(1, 0));
  CHECK_FALSE(MayRead(1, 1));
  CHECK_FALSE(Push(1, 1).commit);
  CHECK_FALSE(Push(2, 1).commit);
  CHECK(WaitsFor() == Members{3});
  const Verdict last = Push(3, 1);
  CHECK(last.commit);
  CHECK(last.weight == 1.0f);
  CHECK(last.commit_scale == 1.0f / 3);
  CHECK(MayRead(1, 1));
  CHECK(policy_->Collecting() == Exchange(2));
}

TEST_CASE_METHOD(BarrierTest, "a barrier folds in rank order", "[consistency][barrier]") {
  Plan({{1, 1}, {2, 1}});
  CHECK(policy_->NextInOrder() == MemberId(1));
  Push(1, 1);
  CHECK(policy_->NextInOrder() == MemberId(2));
  Push(2, 1);
  CHECK(policy_->NextInOrder() == MemberId(1));
}

TEST_CASE_METHOD(BarrierTest, "removing the missing member makes a commit due",
                 "[consistency][barrier]") {
  Plan({{1, 1}, {2, 1}, {3, 1}});
  Push(1, 1);
  Push(2, 1);
  CHECK_FALSE(CommitDue().has_value());
  Plan({{1, 1}, {2, 1}});
  const std::optional<float> scale = CommitDue();
  REQUIRE(scale.has_value());
  CHECK(*scale == 0.5f);
  CHECK(MayRead(1, 1));
  CHECK_FALSE(CommitDue().has_value());
}

TEST_CASE_METHOD(BarrierTest, "a folded push counts though its member is removed",
                 "[consistency][barrier]") {
  Plan({{1, 1}, {2, 1}, {3, 1}});
  Push(1, 1);
  Plan({{2, 1}, {3, 1}});
  Push(2, 1);
  CHECK(Push(3, 1).commit_scale == 1.0f / 3);
  Push(2, 2);
  CHECK(Push(3, 2).commit_scale == 0.5f);
}

TEST_CASE_METHOD(BarrierTest, "a removal before any push commits nothing",
                 "[consistency][barrier]") {
  Plan({{1, 1}, {2, 1}});
  Plan({{1, 1}});
  CHECK_FALSE(CommitDue().has_value());
  CHECK(policy_->Collecting() == Exchange(1));
  CHECK(Push(1, 1).commit);
}

TEST_CASE_METHOD(BarrierTest, "a later member is expected from its first exchange",
                 "[consistency][barrier]") {
  Plan({{1, 1}});
  Plan({{1, 1}, {2, 3}});
  CHECK(Push(1, 1).commit);
  CHECK(Push(1, 2).commit);
  CHECK(MayRead(2, 2));
  CHECK_FALSE(Push(1, 3).commit);
  CHECK(WaitsFor() == Members{2});
  CHECK(Push(2, 3).commit_scale == 0.5f);
}

TEST_CASE_METHOD(BarrierTest, "exchanges that nobody takes part in are skipped",
                 "[consistency][barrier]") {
  Plan({{1, 1}});
  Push(1, 1);
  Plan({{1, 1}, {2, 7}});
  Plan({{2, 7}});
  CHECK(policy_->Collecting() == Exchange(7));
  CHECK(MayRead(2, 6));
  CHECK(Push(2, 7).commit);
}

TEST_CASE_METHOD(BarrierTest, "a skipped exchange is taken back for a member that begins with it",
                 "[consistency][barrier]") {
  Plan({{1, 1}, {2, 7}});
  Push(1, 1);
  Plan({{2, 7}});
  CHECK(policy_->Collecting() == Exchange(7));
  Plan({{2, 7}, {3, 5}});
  CHECK(policy_->Collecting() == Exchange(5));
  CHECK(WaitsFor() == Members{3});
  CHECK_FALSE(MayRead(2, 6));
}

TEST_CASE_METHOD(BarrierTest, "a half-folded update is committed before exchanges are skipped",
                 "[consistency][barrier]") {
  Plan({{1, 1}, {2, 1}});
  Push(1, 1);
  Plan({{3, 5}});
  CHECK(policy_->Collecting() == Exchange(1));
  CHECK(policy_->NextInOrder() == MemberId(0));
  CHECK(CommitDue() == 1.0f);
  CHECK(policy_->Collecting() == Exchange(5));
}

TEST_CASE_METHOD(BarrierTest, "a barrier without members waits for nobody and commits nothing",
                 "[consistency][barrier]") {
  CHECK(WaitsFor().empty());
  CHECK_FALSE(CommitDue().has_value());
  Plan({{1, 1}});
  Plan({});
  CHECK(WaitsFor().empty());
  CHECK_FALSE(CommitDue().has_value());
  CHECK(policy_->Collecting() == Exchange(1));
}

TEST_CASE_METHOD(BarrierTest, "a member that comes into the half-folded exchange is next in rank",
                 "[consistency][barrier]") {
  Plan({{2, 1}, {3, 1}});
  Push(2, 1);
  Plan({{1, 1}, {2, 1}, {3, 1}});
  CHECK(policy_->NextInOrder() == MemberId(1));
  CHECK(WaitsFor() == Members{1, 3});
  CHECK_FALSE(Push(1, 1).commit);
  CHECK(policy_->NextInOrder() == MemberId(3));
  CHECK(Push(3, 1).commit_scale == 1.0f / 3);
}

TEST_CASE_METHOD(BarrierTest, "a plain barrier does not look at examples",
                 "[consistency][barrier]") {
  Plan({{1, 1}, {2, 1}});
  CHECK(Push(1, 1, 10).weight == 1.0f);
  const Verdict last = Push(2, 1, 30);
  CHECK(last.weight == 1.0f);
  CHECK(last.commit_scale == 0.5f);
}

TEST_CASE_METHOD(WeightedBarrierTest, "a weighted barrier forms the mean over examples",
                 "[consistency][barrier]") {
  Plan({{1, 1}, {2, 1}, {3, 1}});
  CHECK(Push(1, 1, 10).weight == 1.0f);
  CHECK(Push(2, 1, 30).weight == 3.0f);
  const Verdict last = Push(3, 1, 5);
  CHECK(last.weight == 0.5f);
  CHECK(last.commit_scale == 1 / 4.5f);
  // The next update's weights are its own.
  CHECK(Push(1, 2, 7).weight == 1.0f);
  CHECK(Push(2, 2, 7).weight == 1.0f);
  CHECK(Push(3, 2, 7).commit_scale == 1.0f / 3);
}

TEST_CASE_METHOD(WeightedBarrierTest, "a push that tells no examples weighs as one",
                 "[consistency][barrier]") {
  Plan({{1, 1}, {2, 1}});
  CHECK(Push(1, 1, 0).weight == 1.0f);
  const Verdict last = Push(2, 1, 4);
  CHECK(last.weight == 4.0f);
  CHECK(last.commit_scale == 0.2f);
}

TEST_CASE_METHOD(WeightedBarrierTest, "a removal commits the mean over the examples that came",
                 "[consistency][barrier]") {
  Plan({{1, 1}, {2, 1}, {3, 1}});
  Push(1, 1, 10);
  Push(2, 1, 30);
  Plan({{1, 1}, {2, 1}});
  CHECK(CommitDue() == 0.25f);
}

}  // namespace
}  // namespace tessera
