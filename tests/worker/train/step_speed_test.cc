#include "worker/train/step_speed.h"

#include <catch2/catch.hpp>

namespace tessera {
namespace {

TEST_CASE("a speed is the mean of the first minibatches, and then of the last ones", "[train]") {
  StepSpeed speed;
  CHECK(speed.per_second() == 0);
  speed.Add(1);
  CHECK(speed.per_second() == 1);
  speed.Add(3);
  CHECK(speed.per_second() == Approx(0.5));
  CHECK(speed.steps() == 2);
  for (int i = 0; i < 200; ++i) speed.Add(0.1);
  CHECK(speed.per_second() == Approx(10).epsilon(1e-6));
}

TEST_CASE("after a restart nothing from before counts, nor the first minibatch", "[train]") {
  StepSpeed speed;
  speed.Add(1);
  speed.Restart();
  CHECK(speed.per_second() == 0);
  CHECK(speed.steps() == 0);
  speed.Add(100);
  CHECK(speed.per_second() == 0);
  speed.Add(0.25);
  CHECK(speed.per_second() == 4);
  CHECK(speed.steps() == 1);
}

}  // namespace
}  // namespace tessera
