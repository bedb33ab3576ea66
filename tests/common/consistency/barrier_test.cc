#include "common/consistency/barrier.h"

#include <catch2/catch.hpp>
#include <vector>

namespace tessera {
namespace {

using Members = std::vector<MemberId>;

// Member m has rank m - 1.
class BarrierTest {
 protected:
  void Plan(std::vector<std::pair<uint64_t, uint64_t>> member_and_first) {
    tessera::Plan plan;
    plan.generation = Generation(++generation_);
    for (const auto& [member, first] : member_and_first) {
      plan.members.push_back({MemberId(member), Rank(member - 1), Exchange(first)});
    }
    policy_->SetMembers(plan);
  }
  Verdict Push(uint64_t member, uint64_t exchange) {
    return policy_->OnPush({MemberId(member), Exchange(exchange), Version(0), Version(0)});
  }
  bool MayRead(uint64_t member, uint64_t after) {
    return policy_->MayRead(MemberId(member), Exchange(after));
  }
  Members WaitsFor() { return policy_->WaitsFor(); }

  std::unique_ptr<ConsistencyPolicy> policy_ = MakeBarrier();
  uint64_t generation_ = 0;
};

TEST_CASE_METHOD(BarrierTest, "a barrier commits with the last member's push",
                 "[consistency][barrier]") {
  Plan({{1, 1}, {2, 1}, {3, 1}});
  CHECK(policy_->Collecting() == Exchange(1));
  CHECK(MayRead(1, 0));
  CHECK_FALSE(MayRead(1, 1));
  CHECK_FALSE(Push(1, 1).commit);
  CHECK_FALSE(Push(2, 1).commit);
  CHECK(WaitsFor() == Members{MemberId(3)});
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
  CHECK_FALSE(policy_->CommitDue().has_value());
  Plan({{1, 1}, {2, 1}});
  const std::optional<float> scale = policy_->CommitDue();
  REQUIRE(scale.has_value());
  CHECK(*scale == 0.5f);
  CHECK(MayRead(1, 1));
  CHECK_FALSE(policy_->CommitDue().has_value());
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
  CHECK_FALSE(policy_->CommitDue().has_value());
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
  CHECK(WaitsFor() == Members{MemberId(2)});
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
  CHECK(WaitsFor() == Members{MemberId(3)});
  CHECK_FALSE(MayRead(2, 6));
}

TEST_CASE_METHOD(BarrierTest, "a half-folded update is committed before exchanges are skipped",
                 "[consistency][barrier]") {
  Plan({{1, 1}, {2, 1}});
  Push(1, 1);
  Plan({{3, 5}});
  CHECK(policy_->Collecting() == Exchange(1));
  CHECK(policy_->NextInOrder() == MemberId(0));
  CHECK(policy_->CommitDue() == 1.0f);
  CHECK(policy_->Collecting() == Exchange(5));
}

TEST_CASE_METHOD(BarrierTest, "a barrier without members waits for nobody and commits nothing",
                 "[consistency][barrier]") {
  CHECK(WaitsFor().empty());
  CHECK_FALSE(policy_->CommitDue().has_value());
  Plan({{1, 1}});
  Plan({});
  CHECK(WaitsFor().empty());
  CHECK_FALSE(policy_->CommitDue().has_value());
  CHECK(policy_->Collecting() == Exchange(1));
}

}  // namespace
}  // namespace tessera
