#include "common/rule/schedule.h"

#include <catch2/catch.hpp>
#include <cmath>

namespace tessera {
namespace {

v1::Schedule WarmUp(int64_t examples) {
  v1::Schedule schedule;
  schedule.set_warmup(examples);
  schedule.mutable_decay()->mutable_constant();
  return schedule;
}

v1::Schedule Steps(int64_t every, double factor) {
  v1::Schedule schedule;
  schedule.mutable_decay()->mutable_step()->set_every(every);
  schedule.mutable_decay()->mutable_step()->set_factor(factor);
  return schedule;
}

v1::Schedule Cosine(int64_t examples, double floor) {
  v1::Schedule schedule;
  schedule.mutable_decay()->mutable_cosine()->set_examples(examples);
  schedule.mutable_decay()->mutable_cosine()->set_floor(floor);
  return schedule;
}

v1::Schedule Milestones(std::initializer_list<int64_t> at, double factor) {
  v1::Schedule schedule;
  *schedule.mutable_decay()->mutable_milestones()->mutable_at() = {at.begin(), at.end()};
  schedule.mutable_decay()->mutable_milestones()->set_factor(factor);
  return schedule;
}

v1::Schedule Line(int64_t examples, double floor) {
  v1::Schedule schedule;
  schedule.mutable_decay()->mutable_linear()->set_examples(examples);
  schedule.mutable_decay()->mutable_linear()->set_floor(floor);
  return schedule;
}

TEST_CASE("without a schedule the factor is always 1", "[schedule]") {
  for (const RateSchedule& schedule :
       {RateSchedule(), RateSchedule(v1::Schedule()), RateSchedule(WarmUp(0))}) {
    for (const uint64_t before : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 60}) {
      CHECK(schedule.Factor(before, 128) == 1);
    }
    CHECK(schedule.is_constant());
  }
  for (const v1::Schedule& changing :
       {WarmUp(1), Steps(9, 0.5), Cosine(9, 0), Milestones({9}, 0.5), Line(9, 0)}) {
    CHECK_FALSE(RateSchedule(changing).is_constant());
  }
}

TEST_CASE("warm-up counts the update's own examples: it never begins at 0, and ends at 1",
          "[schedule]") {
  const RateSchedule schedule(WarmUp(1000));
  CHECK(schedule.Factor(0, 1) == Approx(0.001));
  CHECK(schedule.Factor(0, 250) == 0.25);
  CHECK(schedule.Factor(250, 250) == 0.5);
  CHECK(schedule.Factor(749, 250) < 1);
  CHECK(schedule.Factor(750, 250) == 1);
  CHECK(schedule.Factor(0, 5000) == 1);
  CHECK(schedule.Factor(1000000, 250) == 1);
}

TEST_CASE("steps fall exactly where their examples are full, and the update's own do not count",
          "[schedule]") {
  const RateSchedule schedule(Steps(1000, 0.5));
  CHECK(schedule.Factor(0, 5000) == 1);
  CHECK(schedule.Factor(999, 1) == 1);
  CHECK(schedule.Factor(1000, 1) == 0.5);
  CHECK(schedule.Factor(1999, 1) == 0.5);
  CHECK(schedule.Factor(2000, 1) == 0.25);
  CHECK(schedule.Factor(10500, 1) == std::pow(0.5, 10));
  const RateSchedule far(Steps(int64_t{1000000000000000}, 0.1));
  CHECK(far.Factor(uint64_t{1000000000000000} - 1, 1) == 1);
  CHECK(far.Factor(uint64_t{1000000000000000}, 1) == Approx(0.1));
  CHECK(RateSchedule(Steps(1, 0.1)).Factor(1000000, 1) == 0);
}

TEST_CASE("a cosine begins at 1, is half way in the middle, and rests on its floor", "[schedule]") {
  for (const double floor : {0.0, 0.1, 1.0}) {
    CAPTURE(floor);
    const RateSchedule schedule(Cosine(1000, floor));
    CHECK(schedule.Factor(0, 10) == 1);
    CHECK(schedule.Factor(500, 10) == Approx((1 + floor) / 2));
    CHECK(schedule.Factor(250, 10) == Approx(floor + (1 - floor) * (1 + std::sqrt(0.5)) / 2));
    CHECK(schedule.Factor(1000, 10) == Approx(floor).margin(1e-15));
    CHECK(schedule.Factor(123456789, 10) == Approx(floor).margin(1e-15));
  }
}

TEST_CASE("the rate falls at each milestone, and the update's own examples do not count",
          "[schedule]") {
  const RateSchedule schedule(Milestones({1000, 1001, 5000}, 0.5));
  CHECK(schedule.Factor(0, 9000) == 1);
  CHECK(schedule.Factor(999, 1) == 1);
  CHECK(schedule.Factor(1000, 1) == 0.5);
  CHECK(schedule.Factor(1001, 1) == 0.25);
  CHECK(schedule.Factor(4999, 1) == 0.25);
  CHECK(schedule.Factor(5000, 1) == 0.125);
  CHECK(schedule.Factor(uint64_t{1} << 60, 1) == 0.125);
  // Milestones that are all multiples of one number are steps, as far as they go.
  const RateSchedule steps(Steps(1000, 0.1)), same(Milestones({1000, 2000, 3000}, 0.1));
  for (uint64_t before = 0; before < 4000; before += 50) {
    CHECK(same.Factor(before, 10) == steps.Factor(before, 10));
  }
}

TEST_CASE("a line begins at 1, falls evenly, and rests on its floor", "[schedule]") {
  for (const double floor : {0.0, 0.25, 1.0}) {
    CAPTURE(floor);
    const RateSchedule schedule(Line(1000, floor));
    CHECK(schedule.Factor(0, 10) == 1);
    CHECK(schedule.Factor(250, 10) == 1 - (1 - floor) / 4);
    CHECK(schedule.Factor(500, 10) == (1 + floor) / 2);
    CHECK(schedule.Factor(1000, 10) == floor);
    CHECK(schedule.Factor(123456789, 10) == floor);
  }
}

TEST_CASE("decay never rises, and warm-up multiplies it", "[schedule]") {
  for (v1::Schedule schedule : {Steps(300, 0.7), Cosine(2500, 0.05), Line(3500, 0.05),
                                Milestones({1000, 1500, 3000}, 0.3)}) {
    const RateSchedule decay(schedule);
    schedule.set_warmup(1000);
    const RateSchedule both(schedule);
    const RateSchedule warm_up(WarmUp(1000));
    double last = 1;
    for (uint64_t before = 0; before < 4000; before += 7) {
      const double factor = decay.Factor(before, 10);
      CHECK(factor <= last);
      CHECK(factor >= 0);
      CHECK(both.Factor(before, 10) == Approx(factor * warm_up.Factor(before, 10)));
      last = factor;
    }
    CHECK(last < 0.1);
  }
}

}  // namespace
}  // namespace tessera
