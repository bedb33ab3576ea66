// Members that keep their lease and train no more.
#include <catch2/catch.hpp>

#include "server/control/members/stall_watch.h"
#include "tests/server/control/control_fixture.h"

namespace tessera {
namespace {

constexpr absl::Duration kLease = absl::Seconds(10);

v1::Progress At(v1::Progress::Work work, uint64_t beats) {
  v1::Progress progress;
  progress.set_work(work);
  progress.set_beats(beats);
  return progress;
}

TEST_CASE("a first minibatch has ten leases, the others ten times the longest", "[stall]") {
  StallWatch watch;
  absl::Time now = absl::FromUnixSeconds(1000);
  watch.OnProgress(At(v1::Progress::MINIBATCH, 1), now);
  CHECK_FALSE(watch.IsOver(now + 10 * kLease, kLease));
  CHECK(watch.IsOver(now + 10 * kLease + absl::Seconds(1), kLease));
  now += absl::Seconds(3);
  watch.OnProgress(At(v1::Progress::MINIBATCH, 2), now);
  CHECK_FALSE(watch.IsOver(now + absl::Seconds(30), kLease));
  CHECK(watch.IsOver(now + absl::Seconds(31), kLease));
  // The same word again is no sign of life, and a short minibatch does not make the limit shorter.
  watch.OnProgress(At(v1::Progress::MINIBATCH, 2), now + absl::Seconds(20));
  CHECK(watch.IsOver(now + absl::Seconds(31), kLease));
  watch.OnProgress(At(v1::Progress::MINIBATCH, 3), now + absl::Milliseconds(1));
  CHECK_FALSE(watch.IsOver(now + absl::Seconds(30), kLease));
}

TEST_CASE("short minibatches have a lease", "[stall]") {
  StallWatch watch;
  const absl::Time now = absl::FromUnixSeconds(1000);
  watch.OnProgress(At(v1::Progress::MINIBATCH, 1), now - absl::Milliseconds(5));
  watch.OnProgress(At(v1::Progress::MINIBATCH, 2), now);
  CHECK_FALSE(watch.IsOver(now + kLease, kLease));
  CHECK(watch.IsOver(now + kLease + absl::Milliseconds(1), kLease));
}

TEST_CASE("who waits, says nothing of it, or evaluates for the first time stands not still",
          "[stall]") {
  const absl::Time now = absl::FromUnixSeconds(1000);
  StallWatch waits, silent, evaluates;
  waits.OnProgress(At(v1::Progress::MINIBATCH, 1), now - absl::Seconds(1));
  waits.OnProgress(At(v1::Progress::NOTHING, 2), now);
  silent.OnProgress(v1::Progress(), now);
  evaluates.OnProgress(At(v1::Progress::EVALUATION, 1), now);
  for (const StallWatch& watch : {waits, silent, evaluates}) {
    CHECK_FALSE(watch.IsOver(now + absl::Hours(24), kLease));
  }
  evaluates.OnProgress(At(v1::Progress::NOTHING, 2), now + absl::Minutes(2));
  evaluates.OnProgress(At(v1::Progress::EVALUATION, 3), now + absl::Minutes(3));
  CHECK_FALSE(evaluates.IsOver(now + absl::Minutes(23), kLease));
  CHECK(evaluates.IsOver(now + absl::Minutes(24), kLease));
}

TEST_CASE("what a coordinator sleeps through is held against nobody", "[stall]") {
  ControlFixture control(ControlFixture::Facts(1, 1));
  control.Start(1);
  v1::RenewRequest request;
  request.set_member(1);
  for (uint64_t i = 1; i <= 10; ++i) {
    *request.mutable_progress() = At(v1::Progress::MINIBATCH, i);
    REQUIRE(control.coordinator->Renew(request, control.now).ok());
    control.Heartbeat();
    control.Tick(absl::Seconds(1));
    control.StepAll();
  }
  control.now += 3 * kLease;
  control.coordinator->ExtendLeases(control.now);
  control.Tick(absl::ZeroDuration());
  CHECK(control.StateOf(1) == MemberState::kAdmitted);
  // Nor does it count as a long minibatch.
  for (uint64_t i = 11; i <= 12; ++i) {
    *request.mutable_progress() = At(v1::Progress::MINIBATCH, i);
    REQUIRE(control.coordinator->Renew(request, control.now).ok());
  }
  const StallWatch& stall = control.coordinator->membership().members().Find(MemberId(1))->stall;
  CHECK(stall.Limit(kLease) == kLease);
}

TEST_CASE("a member that renews its lease and goes on with nothing is lost, and is told why",
          "[stall]") {
  ControlFixture control(ControlFixture::Facts(1, 2));
  control.Start(2);
  const auto renew = [&](uint64_t member, uint64_t beats) {
    v1::RenewRequest request;
    request.set_member(member);
    *request.mutable_progress() = At(v1::Progress::MINIBATCH, beats);
    return control.coordinator->Renew(request, control.now).status();
  };
  for (uint64_t i = 1; i <= 25; ++i) {
    REQUIRE(renew(1, i).ok());
    REQUIRE(renew(2, std::min<uint64_t>(i, 5)).ok() == (i < 16));
    control.Heartbeat();
    control.Tick(absl::Seconds(1));
    control.StepAll();
  }
  CHECK_THAT(std::string(renew(2, 6).message()),
             Catch::Contains("it kept its lease, but its training stood still"));
  CHECK(control.servers[0].plan.members_size() == 1);
  CHECK(control.coordinator->Status(control.now).members_lost() == 1);
}

}  // namespace
}  // namespace tessera
