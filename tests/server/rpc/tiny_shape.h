// A model of eight parameters, and waits for what threads bring about: for tests of services with real threads.
#ifndef TESSERA_TESTS_SERVER_RPC_TINY_SHAPE_H_
#define TESSERA_TESTS_SERVER_RPC_TINY_SHAPE_H_

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/steady_clock.h"
#include "common/layout/parameters.h"

namespace tessera {

// What every wait is bounded by; reached only by a failure.
inline constexpr absl::Duration kPatience = absl::Seconds(20);

inline ModelShape TinyShape() {
  ModelShape shape;
  ParameterSpec weight;
  weight.name = "layers.0.weight";
  weight.rows = 4;
  weight.columns = 2;
  weight.initial_bound = 1;
  shape.parameters = {weight};
  shape.widths = {2, 4};
  shape.size = weight.size();
  return shape;
}

template <typename Condition>
bool Eventually(Condition condition) {
  const absl::Time end = SteadyNow() + kPatience;
  while (SteadyNow() < end) {
    if (condition()) return true;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return false;
}

}  // namespace tessera

#endif  // TESSERA_TESTS_SERVER_RPC_TINY_SHAPE_H_
