// The control plane under random schedules.
#include <catch2/catch.hpp>

#include "common/base/log.h"
#include "tests/server/control/random_schedule.h"

namespace tessera {
namespace {

TEST_CASE("whatever happens, ranks are unique, plans only grow newer and every job ends",
          "[control][sim]") {
  SetLogLevel(LogLevel::kError);
  for (uint32_t seed = 0; seed < 300; ++seed) {
    for (bool synchronous : {true, false}) {
      INFO("seed " << seed << (synchronous ? " synchronous" : " asynchronous"));
      Schedule(seed, synchronous).Run();
    }
  }
}

}  // namespace
}  // namespace tessera
