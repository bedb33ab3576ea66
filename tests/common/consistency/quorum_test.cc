#include "common/consistency/quorum.h"

#include <catch2/catch.hpp>

#include "tests/common/consistency/policy_fixture.h"

namespace tessera {
namespace {

using Members = std::vector<uint64_t>;

struct TwoAtOnce : PolicyFixture {
  TwoAtOnce() : PolicyFixture(MakeQuorum({2, absl::ZeroDuration()})) {}
};

struct TwoAndTenSeconds : PolicyFixture {
  TwoAndTenSeconds() : PolicyFixture(MakeQuorum({2, absl::Seconds(10)})) {}
};

struct SquaredExamples : PolicyFixture {
  SquaredExamples() : PolicyFixture(MakeQuorum({2, {}, false, false, true})) {}
};

struct Adaptive : PolicyFixture {
  explicit Adaptive(absl::Duration most = absl::ZeroDuration())
      : PolicyFixture(MakeQuorum({2, most, /*adaptive_grace=*/true})) {}
  void RoundOfTwo(uint64_t round, int64_t at) {
    At(at);
    Push(1, round);
    Push(2, round);
  }
};

struct Beside : PolicyFixture {
  Beside() : PolicyFixture(MakeQuorum({2, {}, /*adaptive_grace=*/true, /*beside=*/true})) {}
};

struct AdaptiveOfTenSeconds : Adaptive {
  AdaptiveOfTenSeconds() : Adaptive(absl::Seconds(10)) {}
};

TEST_CASE_METHOD(TwoAtOnce, "without grace the last of so many pushes closes the round",
                 "[consistency][quorum]") {
  Plan({{1, 1}, {2, 1}, {3, 1}});
  CHECK_FALSE(Push(1, 1).commit);
  CHECK_FALSE(MayRead(1, 1));
  CHECK(WaitsFor() == Members{2, 3});
  const Verdict second = Push(3, 1);
  CHECK(second.commit);
  CHECK(second.commit_scale == 0.5f);
  CHECK(MayRead(1, 1));
  CHECK(MayRead(3, 1));
  CHECK(WaitsFor().empty());
}

TEST_CASE_METHOD(TwoAtOnce, "a late push joins the next round, and its worker goes on",
                 "[consistency][quorum]") {
  Plan({{1, 1}, {2, 1}, {3, 1}});
  Push(1, 1);
  Push(2, 1);
  const Verdict late = Push(3, 1);
  CHECK_FALSE(late.commit);
  CHECK(MayRead(3, 1));
  const Verdict next = Push(1, 2);
  CHECK(next.commit);
  CHECK(next.commit_scale == 0.5f);
  CHECK(MayRead(1, 2));
}

TEST_CASE_METHOD(TwoAtOnce, "a round weighs pushes by their examples", "[consistency][quorum]") {
  Plan({{1, 1}, {2, 1}, {3, 1}});
  CHECK(Push(1, 1, 100).weight == 1.0f);
  const Verdict second = Push(2, 1, 300);
  CHECK(second.weight == 3.0f);
  CHECK(second.commit_scale == 0.25f);
}

TEST_CASE_METHOD(TwoAtOnce, "a member counts once, though it has two pushes in the round",
                 "[consistency][quorum]") {
  Plan({{1, 1}, {2, 1}, {3, 1}});
  Push(1, 1);
  Push(2, 1);
  Push(1, 2);
  Push(2, 2);
  CHECK_FALSE(Push(3, 1).commit);
  CHECK(MayRead(3, 1));
  CHECK_FALSE(Push(3, 2).commit);
  CHECK(MayRead(3, 2));
  CHECK_FALSE(Push(3, 3).commit);
  CHECK_FALSE(MayRead(3, 3));
  CHECK(Push(1, 3).commit_scale == 0.25f);
  CHECK(MayRead(3, 3));
}

TEST_CASE_METHOD(TwoAndTenSeconds, "grace runs from the push that made a quorum",
                 "[consistency][quorum]") {
  Plan({{1, 1}, {2, 1}, {3, 1}, {4, 1}});
  At(100);
  Push(1, 1);
  CHECK(Deadline() == -1);
  At(105);
  CHECK_FALSE(Push(2, 1).commit);
  CHECK(Deadline() == 115);
  At(109);
  CHECK_FALSE(Push(3, 1).commit);
  CHECK(Deadline() == 115);
  At(114);
  CHECK_FALSE(CommitDue().has_value());
  CHECK_FALSE(MayRead(1, 1));
  At(115);
  CHECK(CommitDue() == 1.0f / 3);
  CHECK(MayRead(1, 1));
  CHECK(Deadline() == -1);
  CHECK_FALSE(CommitDue().has_value());
}

TEST_CASE_METHOD(TwoAndTenSeconds, "a round closes at once when all have come",
                 "[consistency][quorum]") {
  Plan({{1, 1}, {2, 1}, {3, 1}});
  Push(1, 1);
  Push(2, 1);
  CHECK(Push(3, 1).commit_scale == 1.0f / 3);
}

TEST_CASE_METHOD(TwoAndTenSeconds, "a push after the grace closes the round, if nobody else has",
                 "[consistency][quorum]") {
  Plan({{1, 1}, {2, 1}, {3, 1}, {4, 1}});
  Push(1, 1);
  Push(2, 1);
  At(10);
  CHECK(Push(3, 1).commit_scale == 1.0f / 3);
}

TEST_CASE_METHOD(TwoAtOnce, "fewer than a quorum are enough when nobody else can come",
                 "[consistency][quorum]") {
  Plan({{1, 1}, {2, 1}});
  Push(1, 1);
  SECTION("removed") { Plan({{1, 1}}); }
  SECTION("at rest") { Rest(2); }
  CHECK(CommitDue() == 1.0f);
  CHECK(MayRead(1, 1));
  CHECK(Push(1, 2).commit);
}

TEST_CASE_METHOD(TwoAtOnce, "a member that wakes is waited for again", "[consistency][quorum]") {
  Plan({{1, 1}, {2, 1}});
  Rest(2);
  CHECK(Push(1, 1).commit);
  Wake(2);
  CHECK_FALSE(Push(1, 2).commit);
  CHECK(WaitsFor() == Members{2});
  CHECK(Push(2, 1).commit);
}

TEST_CASE_METHOD(SquaredExamples, "a push may weigh by the square of its examples",
                 "[consistency][quorum]") {
  Plan({{1, 1}, {2, 1}});
  CHECK(Push(1, 1, 100).weight == 1.0f);
  const Verdict second = Push(2, 1, 300);
  CHECK(second.weight == 9.0f);
  CHECK(second.commit_scale == 0.1f);
}

TEST_CASE_METHOD(Adaptive, "who takes little longer than the quorum is waited for, a slow one not",
                 "[consistency][quorum]") {
  Plan({{1, 1}, {2, 1}, {3, 1}, {4, 1}});
  // The first round is waited for by all, as nothing is known yet.
  RoundOfTwo(1, 100);
  CHECK(Deadline() == -1);
  Push(3, 1);
  At(200);
  CHECK_FALSE(CommitDue().has_value());
  CHECK(Push(4, 1).commit);
  // In the second one the first two take 100 s, so that it stays open for 25 s.
  RoundOfTwo(2, 300);
  CHECK(Deadline() == 325);
  At(316);
  CHECK_FALSE(Push(3, 2).commit);
  CHECK(Deadline() == 325);
  At(325);
  CHECK(CommitDue() == 1.0f / 3);
  // Member 4 has taken more than 125 s already, and is waited for no longer.
  RoundOfTwo(3, 425);
  At(441);
  CHECK(Push(3, 3).commit_scale == 1.0f / 3);
  // In the midst of the fourth round it pushes after 300 s, and is of its quorum.
  At(500);
  Push(4, 2);
  At(541);
  CHECK_FALSE(Push(1, 4).commit);
  CHECK(Deadline() == 566);
  CHECK_FALSE(Push(2, 4).commit);
  At(566);
  CHECK(Push(3, 4).commit);
  At(666);
  Push(1, 5);
  CHECK_FALSE(Push(2, 5).commit);
  SECTION("who comes ends the round, as nobody else is worth waiting for") {
    At(680);
    CHECK(Push(3, 5).commit_scale == 1.0f / 3);
  }
  SECTION("who rests ends it, too") {
    Rest(3);
    CHECK(CommitDue() == 0.5f);
  }
  SECTION("who does not come is left behind") {
    At(690);
    CHECK_FALSE(CommitDue().has_value());
    At(691);
    CHECK(CommitDue() == 0.5f);
  }
}

TEST_CASE_METHOD(Beside, "beside training half of the pace is free", "[consistency][quorum]") {
  Plan({{1, 1}, {2, 1}, {3, 1}});
  for (uint64_t member : {1, 2, 3}) Push(member, 1);
  // Nobody waits, so that their times run from their pushes.
  At(100);
  Push(1, 2);
  CHECK_FALSE(Push(2, 2).commit);
  CHECK(Deadline() == 150);
  At(120);
  CHECK(Push(3, 2).commit);
  At(200);
  Push(1, 3);
  CHECK_FALSE(Push(2, 3).commit);
  CHECK(Deadline() == 250);
}

TEST_CASE_METHOD(AdaptiveOfTenSeconds, "an adaptive grace is no longer than the one that is given",
                 "[consistency][quorum]") {
  Plan({{1, 1}, {2, 1}, {3, 1}, {4, 1}});
  At(100);
  Push(1, 1);
  Push(2, 1);
  // Nothing is known yet.
  CHECK(Deadline() == 110);
  Push(3, 1);
  Push(4, 1);
  // A quarter of the pace would be 25 s.
  At(200);
  Push(1, 2);
  Push(2, 2);
  CHECK(Deadline() == 210);
}

TEST_CASE_METHOD(TwoAtOnce, "when all rest what was folded is committed", "[consistency][quorum]") {
  Plan({{1, 1}, {2, 1}, {3, 1}});
  Push(1, 1);
  Rest(1);
  Rest(2);
  CHECK_FALSE(CommitDue().has_value());
  Rest(3);
  CHECK(CommitDue() == 1.0f);
}

TEST_CASE_METHOD(TwoAtOnce, "a folded push counts though its member was removed",
                 "[consistency][quorum]") {
  Plan({{1, 1}, {2, 1}, {3, 1}});
  Push(1, 1);
  Plan({{2, 1}, {3, 1}});
  CHECK(Push(3, 1).commit_scale == 0.5f);
}

TEST_CASE_METHOD(TwoAtOnce, "a later member is waited for from its first round on",
                 "[consistency][quorum]") {
  Plan({{1, 1}});
  CHECK(FirstExchange(1) == 2);
  CHECK(FirstExchange(5) == 5);
  Plan({{1, 1}, {2, 3}});
  CHECK(Push(1, 1).commit);
  CHECK(Push(1, 2).commit);
  CHECK(MayRead(2, 2));
  CHECK_FALSE(Push(1, 3).commit);
  CHECK(WaitsFor() == Members{2});
  CHECK(Push(2, 3).commit_scale == 0.5f);
}

TEST_CASE_METHOD(TwoAtOnce, "a later member may read before its first round has come",
                 "[consistency][quorum]") {
  Plan({{1, 1}});
  Plan({{1, 1}, {2, 9}});
  CHECK(MayRead(2, 8));
}

TEST_CASE_METHOD(TwoAndTenSeconds,
                 "the first round after a checkpoint waits for all, however far each was",
                 "[consistency][quorum]") {
  Plan({});
  Plan({{1, 45}, {2, 20}, {3, 44}});
  CHECK_FALSE(Push(3, 44).commit);
  CHECK(MayRead(3, 44));
  CHECK(WaitsFor() == Members{1, 2});
  CHECK_FALSE(Push(1, 45).commit);
  CHECK_FALSE(MayRead(1, 45));
  CHECK(Push(2, 20).commit_scale == 1.0f / 3);
  CHECK(MayRead(1, 45));
  CHECK(FirstExchange(1) == 47);
}

TEST_CASE_METHOD(TwoAtOnce, "rounds go on from the number of a member that came early",
                 "[consistency][quorum]") {
  Plan({{1, 1}});
  Plan({{1, 1}, {2, 7}});
  CHECK_FALSE(Push(2, 7).commit);
  CHECK_FALSE(MayRead(2, 7));
  Plan({{2, 7}});
  CHECK(CommitDue() == 1.0f);
  CHECK(MayRead(2, 7));
  CHECK(FirstExchange(1) == 9);
  CHECK(Push(2, 8).commit);
}

TEST_CASE_METHOD(TwoAtOnce, "an empty plan commits what was folded and waits for nobody",
                 "[consistency][quorum]") {
  CHECK_FALSE(CommitDue().has_value());
  Plan({{1, 1}, {2, 1}});
  Push(1, 1);
  Plan({});
  CHECK(WaitsFor().empty());
  CHECK(CommitDue() == 1.0f);
  CHECK_FALSE(CommitDue().has_value());
}

TEST_CASE("three workers do not wait for each other over three servers with a quorum of two",
          "[consistency][quorum]") {
  // Each server folds another worker last.
  std::vector<TwoAtOnce> servers(3);
  for (uint64_t s = 0; s < 3; ++s) {
    servers[s].Plan({{1, 1}, {2, 1}, {3, 1}});
    servers[s].Push((s + 1) % 3 + 1, 1);
    servers[s].Push((s + 2) % 3 + 1, 1);
    servers[s].Push(s + 1, 1);
  }
  bool any_goes_on = false;
  for (uint64_t worker = 1; worker <= 3; ++worker) {
    any_goes_on |= servers[0].MayRead(worker, 1) && servers[1].MayRead(worker, 1) &&
                   servers[2].MayRead(worker, 1);
  }
  CHECK(any_goes_on);
}

}  // namespace
}  // namespace tessera
