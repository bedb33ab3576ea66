#include "worker/train/step_speed.h"

#include <algorithm>
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

// A neighbour has the processor in turns of 12 ms: of twenty minibatches in a row all, some or none wait.
TEST_CASE("what varies within tens of milliseconds does not move a speed", "[train]") {
  StepSpeed speed;
  double least = 1e9, most = 0;
  for (int i = 0; i < 5000; ++i) {
    speed.Add(i % 24 < 12 ? 0.001 : 0.003);
    if (i < 1000) continue;
    least = std::min(least, speed.per_second());
    most = std::max(most, speed.per_second());
  }
  CHECK(least > 0.97 * 500);
  CHECK(most < 1.03 * 500);
  for (int i = 0; i < 1000; ++i) speed.Add(0.004);  // four seconds
  CHECK(speed.per_second() == Approx(250).epsilon(0.05));
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
