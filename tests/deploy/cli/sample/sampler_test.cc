#include "deploy/cli/sample/sampler.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "common/base/philox.h"

namespace tessera {
namespace {

std::vector<int32_t> Drawn(double temperature, uint64_t seed, const std::vector<float>& scores,
                           int count) {
  Sampler sampler(temperature, seed);
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) {
    const absl::StatusOr<int32_t> token = sampler.Draw(scores);
    REQUIRE(token.ok());
    tokens.push_back(*token);
  }
  return tokens;
}

TEST_CASE("temperature 0 takes the first of the largest scores", "[sampler]") {
  CHECK(Drawn(0, 1, {1, 3, -2, 3}, 5) == std::vector<int32_t>(5, 1));
  CHECK(Drawn(0, 9, {-1e30f}, 2) == std::vector<int32_t>(2, 0));
}

TEST_CASE("the same seed draws the same tokens, and another one others", "[sampler]") {
  const std::vector<float> scores = {0.5f, 1, -1, 0, 2};
  CHECK(Drawn(1, 7, scores, 100) == Drawn(1, 7, scores, 100));
  CHECK(Drawn(1, 7, scores, 100) != Drawn(1, 8, scores, 100));
}

TEST_CASE("a draw is the first token whose cumulated probability is above the random number",
          "[sampler]") {
  const std::vector<int32_t> drawn = Drawn(1, 7, {0, 0, 0, 0}, 50);
  for (uint64_t i = 0; i < drawn.size(); ++i) {
    // With four equal tokens it is the first two bits.
    REQUIRE(drawn[i] == static_cast<int32_t>(Philox(7, Stream::kSample, 0, i)[1] >> 30));
  }
}

TEST_CASE("tokens are drawn as often as their scores say at a temperature", "[sampler]") {
  const std::vector<float> scores = {std::log(1.0f), std::log(2.0f), std::log(5.0f)};
  constexpr int kDraws = 40000;
  for (const double temperature : {0.5, 1.0, 3.0}) {
    CAPTURE(temperature);
    std::vector<double> counts(3), shares(3);
    for (const int32_t token : Drawn(temperature, 3, scores, kDraws)) ++counts[token];
    double sum = 0;
    for (size_t t = 0; t < 3; ++t) sum += shares[t] = std::exp(scores[t] / temperature);
    for (size_t t = 0; t < 3; ++t) {
      // Four standard deviations.
      const double p = shares[t] / sum, margin = 4 * std::sqrt(p * (1 - p) / kDraws);
      CHECK(counts[t] / kDraws == Approx(p).margin(margin));
    }
  }
}

TEST_CASE("extreme scores and temperatures neither overflow nor vanish", "[sampler]") {
  CHECK(Drawn(1e-3, 5, {3e38f, -3e38f, 1}, 20) == std::vector<int32_t>(20, 0));
  const std::vector<int32_t> flat = Drawn(1000, 5, {1, 2}, 200);
  CHECK(std::count(flat.begin(), flat.end(), 0) > 60);
  CHECK(std::count(flat.begin(), flat.end(), 1) > 60);
}

TEST_CASE("scores that are no finite numbers are refused", "[sampler]") {
  for (const float strange :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const absl::StatusOr<int32_t> token = Sampler(1, 1).Draw({0, strange, 1});
    REQUIRE(absl::IsFailedPrecondition(token.status()));
    CHECK(std::string(token.status().message()).find("the model's score of token 1 is ") == 0);
  }
}

}  // namespace
}  // namespace tessera
