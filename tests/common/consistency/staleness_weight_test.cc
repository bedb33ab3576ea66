#include "common/consistency/staleness_weight.h"

#include <catch2/catch.hpp>

#include <limits>

namespace tessera {
namespace {

using Kind = StalenessWeight::Kind;

TEST_CASE("a constant weight does not look at staleness", "[consistency][staleness]") {
  const StalenessWeight weight{Kind::kConstant, 0.7f, 1};
  for (uint64_t tau : {0, 1, 2, 1000000}) CHECK(weight(tau) == 0.7f);
}

TEST_CASE("an inverse weight is the scale at 0 and 1, then falls as 1 / tau",
          "[consistency][staleness]") {
  const StalenessWeight weight{Kind::kInverse, 0.8f, 1};
  CHECK(weight(0) == 0.8f);
  CHECK(weight(1) == 0.8f);
  CHECK(weight(2) == 0.4f);
  CHECK(weight(10) == Approx(0.08f));
}

TEST_CASE("a power weight with exponent 1 is the inverse one, with 0 the constant one",
          "[consistency][staleness]") {
  for (uint64_t tau = 0; tau < 100; ++tau) {
    CHECK(StalenessWeight{Kind::kPower, 0.3f, 1}(tau) ==
          StalenessWeight{Kind::kInverse, 0.3f, 1}(tau));
    CHECK(StalenessWeight{Kind::kPower, 0.3f, 0}(tau) == 0.3f);
  }
  CHECK(StalenessWeight{Kind::kPower, 1, 0.5f}(16) == 0.25f);
}

TEST_CASE("an exponential weight falls with the first version already",
          "[consistency][staleness]") {
  const StalenessWeight weight{Kind::kExponential, 2, 0.5f};
  CHECK(weight(0) == 2.0f);
  CHECK(weight(1) == 1.0f);
  CHECK(weight(3) == 0.25f);
  CHECK(StalenessWeight{Kind::kExponential, 2, 1}(77) == 2.0f);
}

TEST_CASE("no staleness makes a weight negative, infinite or not a number",
          "[consistency][staleness]") {
  for (const Kind kind : {Kind::kConstant, Kind::kInverse, Kind::kPower, Kind::kExponential}) {
    const StalenessWeight weight{kind, 1, 0.9f};
    float last = weight(0);
    for (uint64_t tau :
         {uint64_t{1}, uint64_t{100}, uint64_t{1} << 40, std::numeric_limits<uint64_t>::max()}) {
      CHECK(weight(tau) >= 0);
      CHECK(weight(tau) <= last);
      last = weight(tau);
    }
  }
}

}  // namespace
}  // namespace tessera
