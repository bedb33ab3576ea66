#include "server/control/state_times.h"

#include <memory>
#include <utility>

#include <catch2/catch.hpp>

#include "tests/server/control/control_fixture.h"

namespace tessera {
namespace {

constexpr absl::Duration kLongest = absl::Minutes(5);

// A job whose only worker began to train 5 seconds ago; it was begun 2 seconds before that.
struct Training : ControlFixture {
  Training() : ControlFixture(Facts(1, 1)) {
    begun_of.digest = "d1";
    begun_of.layout_hash = 77;
    Start(1);
    now += absl::Seconds(2);
    REQUIRE(coordinator->BeginTraining(MemberId(1), now).ok());
    now += absl::Seconds(5);
  }

  StateMoment Moment() const { return {now, "this machine's", day}; }

  // What another process that goes on at `there` says at once, and a second later.
  v1::JobStatus GoneOn(const StateMoment& there) {
    v1::CoordinatorState state = coordinator->Save();
    Stamp(Moment(), &state);
    ShiftTimes(there, kLongest, &state);
    auto next = Coordinator::Load(begun_of, state);
    REQUIRE(next.ok());
    (*next)->Reconnect(there.steady);
    after = (*next)->Status(there.steady + absl::Seconds(1));
    return (*next)->Status(there.steady);
  }

  JobFacts begun_of = Facts(1, 1);
  absl::Time day = absl::FromUnixSeconds(1'700'000'000);
  v1::JobStatus after;
};

TEST_CASE("the job's clocks go on while nobody coordinates, on the same machine by its own clock",
          "[control][state]") {
  Training job;
  // The day was set back meanwhile, which is nothing to it.
  const v1::JobStatus status =
      job.GoneOn({job.now + absl::Seconds(3), "this machine's", job.day - absl::Hours(1)});
  CHECK(status.train_seconds() == 8);
  CHECK(status.wall_seconds() == 10);
  CHECK(job.after.train_seconds() == 9);
  CHECK(job.after.wall_seconds() == 11);
}

TEST_CASE("the job's clocks go on on another machine, by the day", "[control][state]") {
  Training job;
  // It was started just now: the job began before.
  const absl::Time there = absl::FromUnixSeconds(1);
  const v1::JobStatus status = job.GoneOn({there, "another's", job.day + absl::Seconds(3)});
  CHECK(status.train_seconds() == 8);
  CHECK(status.wall_seconds() == 10);
  CHECK(job.after.train_seconds() == 9);
}

TEST_CASE(
    "a clock of the day that is wrong takes no time away, and adds no more than anybody waits",
    "[control][state]") {
  Training job;
  for (const char* name : {"another's", ""}) {
    const absl::Time there = absl::FromUnixSeconds(7);
    v1::JobStatus status = job.GoneOn({there, name, job.day - absl::Hours(1)});
    CHECK(status.train_seconds() == 5);
    CHECK(status.wall_seconds() == 7);
    status = job.GoneOn({there, name, job.day + absl::Hours(1)});
    CHECK(status.train_seconds() == 5 + absl::ToDoubleSeconds(kLongest));
    CHECK(status.wall_seconds() == 7 + absl::ToDoubleSeconds(kLongest));
  }
}

TEST_CASE("a clock that stands for an evaluation stands while nobody coordinates",
          "[control][state]") {
  Training job;
  REQUIRE(job.Evaluate(1, v1::ARRIVE, 10).ok());
  const v1::JobStatus status = job.GoneOn({job.now + absl::Seconds(3), "this machine's", job.day});
  CHECK(status.train_seconds() == 5);
  CHECK(status.wall_seconds() == 10);
  CHECK(job.after.train_seconds() == 5);
}

TEST_CASE("a job that has ended took as long as it took", "[control][state]") {
  Training job;
  REQUIRE(job.Leave(1).ok());
  job.StepAll();
  REQUIRE(job.coordinator->ended());
  job.now += absl::Seconds(20);
  CHECK(job.GoneOn({job.now + absl::Seconds(3), "this machine's", job.day}).wall_seconds() == 7);
}

TEST_CASE("leases are as long ago as they were", "[control][state]") {
  Training job;
  v1::CoordinatorState state = job.coordinator->Save();
  Stamp(job.Moment(), &state);
  const int64_t heard = state.membership().members(0).last_heard();
  ShiftTimes({job.now + absl::Seconds(3), "this machine's", job.day}, kLongest, &state);
  CHECK(state.membership().members(0).last_heard() ==
        heard + absl::ToInt64Nanoseconds(absl::Seconds(3)));
}

}  // namespace
}  // namespace tessera
