#include "kernels/exponential.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

namespace tessera {
namespace {

struct SoftplusPart {
  double sum = 0;
  double product = 1;
};

}  // namespace

TEST_CASE("FastExp is within 2 units in the last place from -87 to 0", "[exponential]") {
  for (double x = -87; x <= 0; x += 1.0 / 2048 + 1e-6) {
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

TEST_CASE("log(1 + e) is within a rounding or two, alone and many together", "[exponential]") {
  SoftplusPart all;
  double want_all = 0;
  for (double e = 1e-30; e <= 1; e = e < 1e-3 ? e * 1.37 : e + 1e-5) {
    const float argument = static_cast<float>(e);
    const double want = std::log1p(static_cast<double>(argument));
    CAPTURE(argument);
    SoftplusPart one;
    AddSoftplus(-1, argument, &one.sum, &one.product);
    REQUIRE(std::fabs(one.sum + std::log(one.product) - want) <= 2 * 0x1p-24 * want);
    AddSoftplus(-1, argument, &all.sum, &all.product);
    MovePower(&all.sum, &all.product);
    REQUIRE(all.product >= 1);
    REQUIRE(all.product < 2);
    want_all += want;
  }
  // Half a million sums in f64.
  CHECK(std::fabs(all.sum + std::log(all.product) - want_all) <= 1e-11 * want_all);
}

TEST_CASE("log(1 + e) of a few together is within two roundings for each", "[exponential]") {
  constexpr int kTogether = 4;
  std::vector<float> arguments;
  for (double e = 1e-30; e <= 1; e *= 1.37) arguments.push_back(static_cast<float>(e));
  arguments.insert(arguments.end(), kTogether, 1.0f);
  for (size_t first = 0; first + kTogether <= arguments.size(); ++first) {
    // Falling as well, and with a large one among small ones.
    for (const bool falls : {false, true}) {
      SoftplusPart part;
      float above_one = 0;
      double want = 0;
      for (int k = 0; k < kTogether; ++k) {
        const float e = falls ? arguments[first + kTogether - 1 - k]
                              : arguments[k == 1 ? arguments.size() - 1 - first : first + k];
        above_one = GrowByOnePlus(e, above_one);
        want += std::log1p(static_cast<double>(e));
      }
      AddGrown(above_one, &part.sum, &part.product);
      CAPTURE(first, falls);
      REQUIRE(std::fabs(part.sum + std::log(part.product) - want) <=
              2 * kTogether * 0x1p-24 * want);
    }
  }
  SoftplusPart part;
  AddGrown(GrowByOnePlus(NAN, 0), &part.sum, &part.product);
  CHECK(std::isnan(part.sum + std::log(part.product)));
}

TEST_CASE("what log(1 + exp(z)) is far out, and where z is no number", "[exponential]") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto of = [](float z) {
    SoftplusPart part;
    AddSoftplus(z, FastExp(z < 0 ? z : -z), &part.sum, &part.product);
    MovePower(&part.sum, &part.product);
    return part.sum + std::log(part.product);
  };
  CHECK(of(0) == Approx(std::log(2.0)).epsilon(1e-15));
  CHECK(of(-80) == Approx(std::exp(-80.0)).epsilon(1e-6));
  CHECK(of(3e38f) == 3e38f);
  CHECK(of(kInfinity) == kInfinity);
  CHECK(of(-kInfinity) == 0);
  CHECK(std::isnan(of(NAN)));
}

}  // namespace tessera
