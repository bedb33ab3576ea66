#include "common/codec/tau.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "common/codec/threshold_payload.h"
#include "tests/common/codec/coded_bytes.h"

namespace tessera {
namespace {

TEST_CASE("a led tau stays near its density, also when updates shrink", "[codec][threshold]") {
  constexpr int64_t kEntries = 100000;
  for (const double density : {0.002, 0.05}) {
    Tau tau(0, density);
    std::vector<float> residual(kEntries);
    int64_t late = 0;
    int64_t shrunk = 0;
    for (int step = 0; step < 200; ++step) {
      const std::vector<float> update = Normal(kEntries, step, step < 100 ? 1.0f : 0.2f);
      std::vector<float> magnitudes;
      SampleMagnitudes(update.data(), residual.data(), kEntries, tau.sample_size(), &magnitudes);
      tau.Lead(magnitudes);
      ThresholdEncoder encoder(tau.value(), false);
      encoder.Encode(update.data(), residual.data(), kEntries);
      if (step >= 50 && step < 100) late += encoder.sent();
      if (step >= 150) shrunk += encoder.sent();
    }
    CHECK(late / 50.0 / kEntries == Approx(density).epsilon(0.45));
    CHECK(shrunk / 50.0 / kEntries == Approx(density).epsilon(0.45));
  }
}

TEST_CASE("while every update is zero nothing is sent, and the first other one sets tau",
          "[codec][threshold]") {
  Tau tau(0, 0.01);
  tau.Lead(std::vector<float>(100, 0.0f));
  std::vector<float> update(100, 1e20f);
  std::vector<float> residual(100);
  ThresholdEncoder encoder(tau.value(), false);
  encoder.Encode(update.data(), residual.data(), 100);
  CHECK(encoder.sent() == 0);
  tau.Lead({0, 0, 3, 0});
  CHECK(tau.value() == 3);
  tau.Lead({std::nanf(""), std::numeric_limits<float>::infinity()});
  CHECK(tau.value() == 3);
  Tau fixed(0.5, 0.1);
  fixed.Lead({1, 2, 3});
  CHECK(fixed.value() == 0.5f);
}

TEST_CASE("a led tau that was kept goes on as one that never stopped", "[codec][threshold]") {
  const auto lead = [](Tau* tau, int step) { tau->Lead(Normal(1000, step, 1.0f + 0.1f * step)); };
  Tau whole(0, 0.05), first(0, 0.05), second(0, 0.05), anew(0, 0.05);
  for (int step = 0; step < 20; ++step) lead(&whole, step);
  for (int step = 0; step < 10; ++step) lead(&first, step);
  const std::vector<float> kept(first.state().begin(), first.state().end());
  REQUIRE(second.state().size() == kept.size());
  std::copy(kept.begin(), kept.end(), second.state().begin());
  for (int step = 10; step < 20; ++step) {
    lead(&second, step);
    lead(&anew, step);
  }
  CHECK(second.value() == whole.value());
  CHECK(anew.value() != whole.value());
  CHECK(Tau(0.5, 0).state().empty());
}

TEST_CASE("a state that no tau can have is none", "[codec][threshold]") {
  const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  for (const float wrong : {nan, infinity, -infinity, -3.0f, 0.0f, 1e-38f}) {
    for (const float known : {1.0f, nan, 2.0f}) {
      Tau tau(0, 0.01);
      tau.state()[0] = wrong;
      tau.state()[1] = known;
      CHECK(tau.value() == Tau(0, 0.01).value());
      tau.Lead({0, 0, 3, 0});
      CHECK(tau.value() == 3);
    }
  }
}

TEST_CASE("a sample is spread over all entries", "[codec][threshold]") {
  std::vector<float> update(1000);
  for (int i = 0; i < 1000; ++i) update[i] = static_cast<float>(-i);
  const std::vector<float> residual(1000, -1);
  std::vector<float> sample;
  SampleMagnitudes(update.data(), residual.data(), 1000, 100, &sample);
  REQUIRE(sample.size() >= 80);
  REQUIRE(sample.size() <= 120);
  CHECK(sample.front() == 1);
  CHECK(sample.back() > 980);
  sample.clear();
  SampleMagnitudes(update.data(), residual.data(), 5, 100, &sample);
  CHECK(sample == std::vector<float>{1, 2, 3, 4, 5});
}

}  // namespace
}  // namespace tessera
