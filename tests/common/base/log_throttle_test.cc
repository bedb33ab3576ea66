#include "common/base/log_throttle.h"

#include <catch2/catch.hpp>

namespace tessera {
namespace {

TEST_CASE("so many lines pass in an interval, and the next one hears how many did not",
          "[base][log]") {
  LogThrottle throttle(2, absl::Seconds(10));
  absl::Time now = absl::UnixEpoch();
  CHECK(throttle.Pass(now) == 0);
  CHECK(throttle.Pass(now + absl::Seconds(3)) == 0);
  for (int i = 0; i < 5; ++i) CHECK_FALSE(throttle.Pass(now + absl::Seconds(9)).has_value());
  now += absl::Seconds(10);
  CHECK(throttle.Pass(now) == 5);
  CHECK(throttle.Pass(now) == 0);
  CHECK_FALSE(throttle.Pass(now).has_value());
}

}  // namespace
}  // namespace tessera
