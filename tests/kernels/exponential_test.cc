#include "kernels/exponential.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

namespace tessera {

TEST_CASE("FastExp is within 2 units in the last place from -87 to 88", "[exponential]") {
  for (double x = -87; x <= 88; x += 1.0 / 1024 + 1e-6) {
    const float argument = static_cast<float>(x);
    const double want = std::exp(static_cast<double>(argument));
    CAPTURE(argument);
    REQUIRE(std::fabs(FastExp(argument) - want) <= 2 * 0x1p-23 * want);
  }
}

TEST_CASE("FastExp is exact at 0, nothing far below, and a NaN at NaN", "[exponential]") {
  CHECK(FastExp(0.0f) == 1.0f);
  CHECK(FastExp(-0.0f) == 1.0f);
  CHECK(FastExp(-87.01f) == 0.0f);
  CHECK(FastExp(-std::numeric_limits<float>::max()) == 0.0f);
  CHECK(FastExp(-std::numeric_limits<float>::infinity()) == 0.0f);
  CHECK(std::isnan(FastExp(std::numeric_limits<float>::quiet_NaN())));
}

TEST_CASE("FastLog1p is within 4 units in the last place from 0 to 1", "[exponential]") {
  for (double e = 1e-30; e <= 1; e = e < 1e-3 ? e * 1.37 : e + 1e-5) {
    const float argument = static_cast<float>(e);
    const double want = std::log1p(static_cast<double>(argument));
    CAPTURE(argument);
    REQUIRE(std::fabs(FastLog1p(argument) - want) <= 4 * 0x1p-23 * want);
  }
  CHECK(FastLog1p(0.0f) == 0.0f);
  CHECK(FastLog1p(1.0f) == Approx(std::log(2.0)).epsilon(1e-7));
}

}  // namespace tessera
