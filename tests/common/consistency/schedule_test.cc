// Policies under thousands of random schedules: against a naive copy of each, and against each
// other where two must be the same.
#include "tests/common/consistency/schedule.h"

#include <catch2/catch.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "common/consistency/barrier.h"
#include "common/consistency/forwarding_policy.h"
#include "common/consistency/none.h"
#include "common/consistency/quorum.h"
#include "common/consistency/softsync.h"
#include "common/consistency/ssp.h"
#include "tests/common/consistency/naive_policies.h"

namespace tessera {
namespace {

using Policy = std::unique_ptr<ConsistencyPolicy>;

constexpr uint64_t kSeeds = 4000;

// `one` and `other` make a policy for a number that all their options are to follow from.
void CheckSame(const ScheduleOptions& options, const std::function<Policy(uint64_t)>& one,
               const std::function<Policy(uint64_t)>& other, uint64_t seeds = kSeeds) {
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    const std::string difference = Difference(seed, options, one(seed).get(), other(seed).get());
    INFO("seed " << seed);
    REQUIRE(difference == "");
  }
}

// Whenever no update is half collected another one goes on, from what a standby is told; or, where none is to go on,
// this one is asked what that would be.
class HandedOn final : public ForwardingPolicy {
 public:
  explicit HandedOn(std::function<Policy()> make, bool goes_on = true)
      : ForwardingPolicy(make()), make_(make), goes_on_(goes_on) {}

  void SetMembers(const Plan& plan) override {
    plan_ = plan;
    ForwardingPolicy::SetMembers(plan);
    HandOn();
  }
  Verdict OnPush(const PushFacts& push) override {
    resting_.erase(push.member);
    const Verdict verdict = ForwardingPolicy::OnPush(push);
    is_open_ = !verdict.commit;
    HandOn();
    return verdict;
  }
  std::optional<float> CommitDue(absl::Time now) override {
    const std::optional<float> scale = ForwardingPolicy::CommitDue(now);
    is_open_ = is_open_ && !scale.has_value();
    HandOn();
    return scale;
  }
  void SetResting(MemberId member, bool resting) override {
    resting_.erase(member);
    if (resting) resting_.insert(member);
    ForwardingPolicy::SetResting(member, resting);
    HandOn();
  }

 private:
  void HandOn() {
    if (is_open_) return;
    const PolicyState state = State();
    if (!goes_on_) return;
    Policy next = make_();
    next->SetMembers(plan_);
    next->SetState(state);
    for (const MemberId member : resting_) {
      if (plan_.Find(member) != nullptr) next->SetResting(member, true);
    }
    Replace(std::move(next));
  }

  const std::function<Policy()> make_;
  const bool goes_on_;
  Plan plan_;
  std::set<MemberId> resting_;
  bool is_open_ = false;
};

// A policy that is handed on answers as one that is not.
void CheckHandedOn(const ScheduleOptions& options, const std::function<Policy(uint64_t)>& make) {
  CheckSame(options, make, [&](uint64_t seed) -> Policy {
    return std::make_unique<HandedOn>([&make, seed] { return make(seed); });
  });
}

StalenessWeight WeightOf(uint64_t seed) {
  return {static_cast<StalenessWeight::Kind>(seed % 4), 0.5f, 0.75f};
}

TEST_CASE("a barrier answers as the one that searches its lists", "[consistency][barrier]") {
  ScheduleOptions options;
  options.rests = false;
  CheckSame(
      options, [](uint64_t seed) { return MakeBarrier(); },
      [](uint64_t seed) { return NaiveBarrier(); });
}

TEST_CASE("softsync answers as its definition does", "[consistency][softsync]") {
  const auto pushes = [](uint64_t seed) { return static_cast<int64_t>(1 + seed / 4 % 6); };
  CheckSame(
      ScheduleOptions(), [&](uint64_t seed) { return MakeSoftsync(pushes(seed), WeightOf(seed)); },
      [&](uint64_t seed) { return NaiveSoftsync(pushes(seed), WeightOf(seed)); });
}

TEST_CASE("ssp answers as its definition does", "[consistency][ssp]") {
  CheckSame(
      ScheduleOptions(), [](uint64_t seed) { return MakeSsp(seed % 4, 0.5f); },
      [](uint64_t seed) { return NaiveSsp(seed % 4, 0.5f); });
}

TEST_CASE("a quorum answers as its definition does", "[consistency][quorum]") {
  const auto pushes = [](uint64_t seed) { return static_cast<int64_t>(1 + seed % 6); };
  const auto grace = [](uint64_t seed) { return absl::Seconds(seed / 6 % 4 * 3); };
  CheckSame(
      ScheduleOptions(),
      [&](uint64_t seed) {
        return MakeQuorum({pushes(seed), grace(seed)});
      },
      [&](uint64_t seed) { return NaiveQuorum(pushes(seed), grace(seed)); });
}

TEST_CASE("softsync of one push is no consistency, push for push", "[consistency][softsync]") {
  ScheduleOptions options;
  options.moves = 200;
  CheckSame(
      options, [](uint64_t seed) { return MakeSoftsync(1, WeightOf(seed)); },
      [](uint64_t seed) { return MakeNone(WeightOf(seed)); }, 1000);
}

TEST_CASE("a quorum of all is a weighted barrier where all push in their turn",
          "[consistency][quorum][barrier]") {
  ScheduleOptions options;
  options.joins = false;
  options.checkpoints = false;  // A barrier waits for each exchange of its own.
  options.rests = false;
  options.all_answers = false;
  CheckSame(
      options, [](uint64_t seed) { return MakeWeightedBarrier(); },
      [](uint64_t seed) {
        return MakeQuorum({6, absl::ZeroDuration()});
      });
}

TEST_CASE("a standby goes on from what it is told as the one that told it", "[consistency]") {
  ScheduleOptions lockstep;
  lockstep.rests = false;
  CheckHandedOn(lockstep, [](uint64_t seed) { return MakeBarrier(); });
  CheckHandedOn(ScheduleOptions(), [](uint64_t seed) { return MakeSsp(seed % 4, 0.5f); });
  CheckHandedOn(ScheduleOptions(), [](uint64_t seed) {
    return MakeSoftsync(static_cast<int64_t>(1 + seed / 4 % 6), WeightOf(seed));
  });
  CheckHandedOn(ScheduleOptions(), [](uint64_t seed) {
    return MakeQuorum({static_cast<int64_t>(1 + seed % 6), absl::Seconds(seed / 6 % 4 * 3)});
  });
}

TEST_CASE("what a standby is not told the one that tells it forgets", "[consistency][quorum]") {
  const auto adaptive = [](uint64_t seed) {
    return MakeQuorum({static_cast<int64_t>(1 + seed % 6), absl::Seconds(seed / 6 % 4 * 3),
                       /*adaptive_grace=*/true, /*beside=*/seed / 24 % 2 != 0});
  };
  const auto asked = [&](bool goes_on) {
    return [&adaptive, goes_on](uint64_t seed) -> Policy {
      return std::make_unique<HandedOn>([&adaptive, seed] { return adaptive(seed); }, goes_on);
    };
  };
  CheckSame(ScheduleOptions(), asked(false), asked(true));
}

TEST_CASE("the comparison sees a weight, an order and a count that differ", "[consistency]") {
  const auto differ = [](Policy one, Policy other) {
    ScheduleOptions options;
    options.moves = 500;
    return !Difference(1, options, one.get(), other.get()).empty();
  };
  const StalenessWeight constant;
  CHECK(differ(MakeSoftsync(2, constant), NaiveSoftsync(3, constant)));
  CHECK(differ(MakeNone(1.0f), MakeNone(0.5f)));
  CHECK(differ(MakeSsp(1, 1), NaiveSsp(2, 1)));
  CHECK(differ(MakeQuorum({2, absl::ZeroDuration()}), NaiveQuorum(2, absl::Seconds(3))));
  CHECK(differ(MakeBarrier(), MakeNone(1.0f)));
}

}  // namespace
}  // namespace tessera
