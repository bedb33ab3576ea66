#include "common/consistency/softsync.h"

#include <catch2/catch.hpp>

#include "tests/common/consistency/policy_fixture.h"

namespace tessera {
namespace {

struct Three : PolicyFixture {
  Three() : PolicyFixture(MakeSoftsync(3, StalenessWeight())) {}
};

struct TwoInverse : PolicyFixture {
  TwoInverse() : PolicyFixture(MakeSoftsync(2, {StalenessWeight::Kind::kInverse, 1, 1})) {}
};

TEST_CASE_METHOD(Three, "softsync commits the mean of every third push",
                 "[consistency][softsync]") {
  Plan({{1, 1}, {2, 1}, {3, 1}, {4, 1}});
  for (int update = 0; update < 3; ++update) {
    CHECK_FALSE(Push(2, 1).commit);
    CHECK_FALSE(Push(4, 1).commit);
    const Verdict third = Push(1, 1);
    CHECK(third.commit);
    CHECK(third.weight == 1.0f);
    CHECK(third.commit_scale == 1.0f / 3);
  }
}

TEST_CASE_METHOD(Three, "one worker may fill all places", "[consistency][softsync]") {
  Plan({{1, 1}, {2, 1}, {3, 1}});
  CHECK_FALSE(Push(1, 1).commit);
  CHECK_FALSE(Push(1, 2).commit);
  CHECK(Push(1, 3).commit);
}

TEST_CASE_METHOD(TwoInverse, "softsync halves the weight of a push that is two versions late",
                 "[consistency][softsync]") {
  Plan({{1, 1}, {2, 1}});
  CHECK(Late(1, 0).weight == 1.0f);
  const Verdict second = Late(2, 2);
  CHECK(second.weight == 0.5f);
  // The mean divides by the pushes, not by their weights.
  CHECK(second.commit_scale == 0.5f);
}

TEST_CASE_METHOD(Three, "softsync asks for no more pushes than there are members",
                 "[consistency][softsync]") {
  Plan({{1, 1}, {2, 1}});
  CHECK_FALSE(Push(1, 1).commit);
  CHECK(Push(1, 2).commit_scale == 0.5f);
  Plan({{2, 1}});
  CHECK(Push(2, 1).commit);
  Plan({{2, 1}, {3, 1}, {4, 1}, {5, 1}});
  CHECK_FALSE(Push(2, 2).commit);
  CHECK_FALSE(Push(2, 3).commit);
  CHECK(Push(2, 4).commit);
}

TEST_CASE_METHOD(Three, "a removal that makes the pending pushes enough commits them",
                 "[consistency][softsync]") {
  Plan({{1, 1}, {2, 1}, {3, 1}});
  Push(1, 1);
  Push(3, 1);
  CHECK_FALSE(CommitDue().has_value());
  Plan({{1, 1}, {2, 1}});
  CHECK(CommitDue() == 0.5f);
  CHECK_FALSE(CommitDue().has_value());
}

TEST_CASE_METHOD(Three, "a push before the due commit joins it", "[consistency][softsync]") {
  Plan({{1, 1}, {2, 1}, {3, 1}});
  Push(1, 1);
  Push(3, 1);
  Plan({{1, 1}, {2, 1}});
  CHECK(Push(2, 1).commit_scale == 1.0f / 3);
  CHECK_FALSE(CommitDue().has_value());
}

TEST_CASE_METHOD(Three, "what is pending is committed once all members rest",
                 "[consistency][softsync]") {
  Plan({{1, 1}, {2, 1}, {3, 1}});
  Push(1, 1);
  Rest(1);
  Rest(2);
  CHECK_FALSE(CommitDue().has_value());
  Rest(3);
  CHECK(CommitDue() == 1.0f);
  CHECK_FALSE(CommitDue().has_value());
}

TEST_CASE_METHOD(Three, "the last one awake may leave the rest to themselves",
                 "[consistency][softsync]") {
  Plan({{1, 1}, {2, 1}, {3, 1}, {4, 1}});
  Push(1, 1);
  Rest(1);
  Rest(2);
  Rest(3);
  Plan({{1, 1}, {2, 1}, {3, 1}});
  CHECK(CommitDue() == 1.0f);
}

TEST_CASE_METHOD(Three, "a push wakes its member", "[consistency][softsync]") {
  Plan({{1, 1}, {2, 1}, {3, 1}});
  Rest(1);
  Rest(2);
  Rest(3);
  Push(2, 1);
  CHECK_FALSE(CommitDue().has_value());
  Rest(2);
  Rest(2);
  CHECK(CommitDue() == 1.0f);
}

TEST_CASE_METHOD(Three, "with softsync nobody waits", "[consistency][softsync]") {
  Plan({{1, 1}, {2, 1}, {3, 1}});
  Push(1, 1);
  CHECK(MayRead(1, 1));
  CHECK(WaitsFor().empty());
  CHECK(policy_->Collecting() == Exchange(0));
}

TEST_CASE_METHOD(Three, "when all have left the pending pushes are committed",
                 "[consistency][softsync]") {
  Plan({{1, 1}, {2, 1}, {3, 1}});
  Push(1, 1);
  Plan({});
  CHECK(CommitDue() == 1.0f);
}

}  // namespace
}  // namespace tessera
