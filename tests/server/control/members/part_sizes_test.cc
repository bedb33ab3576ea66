#include "server/control/members/part_sizes.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <random>

#include "common/keyset/subnet.h"

namespace tessera {
namespace {

double Spread(const std::vector<double>& values) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return *most / *least;
}

// Machines that need slow * (linear s + square s^2) seconds for a step with a part of size s, 1 being
// the mean.
struct Machines {
  std::vector<double> slow;
  double linear = 1;
  double square = 0;
  double noise = 0;
  std::mt19937 random{3};
  std::vector<uint32_t> shares = std::vector<uint32_t>(slow.size(), kMeanShare);

  std::vector<double> Speeds() {
    std::uniform_real_distribution<double> off(1 - noise, 1 + noise);
    const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
    std::vector<double> speeds;
    for (size_t i = 0; i < slow.size(); ++i) {
      const double s = shares[i] / all * static_cast<double>(slow.size());
      speeds.push_back(off(random) / (slow[i] * (linear * s + square * s * s)));
    }
    return speeds;
  }
  // Measures, and takes what comes; false: nothing changes.
  bool Step(int64_t least_width) {
    const std::vector<double> speeds = Speeds();
    std::vector<MeasuredSite> sites;
    for (size_t i = 0; i < slow.size(); ++i) sites.push_back({shares[i], speeds[i]});
    const auto next = NextShares(sites, least_width);
    if (!next.has_value()) return false;
    shares = *next;
    return true;
  }
  bool AtLeast(size_t i) const {
    const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
    return shares[i] / all * static_cast<double>(slow.size()) < kPartLeast * 1.001;
  }
};

TEST_CASE("all come to the same speed, whatever a part's size costs, and stay there",
          "[control][parts]") {
  const auto [linear, square] = GENERATE(table<double, double>({{1, 0}, {0, 1}, {1, 1}, {5, 1}}));
  const double ratio = GENERATE(1.2, 1.5, 2, 3, 5, 8);
  const int count = GENERATE(2, 3, 16);
  CAPTURE(linear, square, ratio, count);
  Machines m{std::vector<double>(count, 1), linear, square};
  m.slow[0] = ratio;
  if (count > 2) m.slow[1] = std::sqrt(ratio);
  double spread = Spread(m.Speeds());
  int steps = 0;
  while (m.Step(2048)) {
    REQUIRE(++steps <= 8);
    // It gets nearer each time, from the same side: the slowest keeps the smallest part.
    const double next = Spread(m.Speeds());
    CHECK(next < spread);
    CHECK(m.shares[0] == *std::min_element(m.shares.begin(), m.shares.end()));
    spread = next;
  }
  CHECK((spread <= 1.1 || m.AtLeast(0)));
}

TEST_CASE("where a bound keeps the slowest, the others are as fast as each other",
          "[control][parts]") {
  Machines m{{40, 1, 2, 3, 1, 1}, 1, 0};
  while (m.Step(2048)) {
  }
  CHECK(m.AtLeast(0));
  std::vector<double> speeds = m.Speeds();
  speeds.erase(speeds.begin());
  CHECK(Spread(speeds) <= 1.1);
}

TEST_CASE("noise below the threshold recuts nothing, and above it moves a part by half of it",
          "[control][parts]") {
  Machines m{std::vector<double>(8, 1), 1, 1};
  m.noise = 0.04;
  for (int i = 0; i < 1000; ++i) REQUIRE_FALSE(m.Step(2048));
  m.noise = 0.2;
  for (int i = 0; i < 1000; ++i) {
    m.Step(2048);
    for (const uint32_t share : m.shares) {
      REQUIRE(share > kMeanShare * 0.75);
      REQUIRE(share < kMeanShare * 1.25);
    }
  }
}

TEST_CASE("shares keep their bounds, their mean, their order, and a neuron for everybody",
          "[control][parts]") {
  std::mt19937 random(7);
  for (int i = 0; i < 3000; ++i) {
    const size_t count = std::uniform_int_distribution<size_t>(1, i % 10 == 0 ? 300 : 9)(random);
    const int64_t width =
        std::uniform_int_distribution<int64_t>(count, i % 3 == 0 ? count + 3 : 6 * count)(random);
    std::vector<double> sizes;
    for (size_t s = 0; s < count; ++s) {
      sizes.push_back(std::exp(std::uniform_real_distribution<double>(-8, 8)(random)));
    }
    const std::vector<uint32_t> shares = BoundedShares(sizes, width);
    CAPTURE(i, count, width);
    REQUIRE(shares.size() == count);
    const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
    REQUIRE(all == Approx(static_cast<double>(count) * kMeanShare).epsilon(1e-4));
    SubnetPlace place;
    place.shares = shares;
    for (size_t s = 0; s < count; ++s) {
      REQUIRE(shares[s] >= kPartLeast * kMeanShare - 1);
      REQUIRE(shares[s] <= kPartMost * kMeanShare + 1);
      place.site = static_cast<uint32_t>(s);
      if (count <= 9) REQUIRE_FALSE(PartOf(place, 1, width).empty());
      for (size_t t = 0; t < count; ++t) {
        if (sizes[s] <= sizes[t]) REQUIRE(shares[s] <= shares[t]);
      }
    }
  }
}

TEST_CASE("sizes within the bounds are kept in proportion", "[control][parts]") {
  CHECK(BoundedShares({3, 1}, 100) == std::vector<uint32_t>{98304, 32768});
  CHECK(BoundedShares({1}, 100) == std::vector<uint32_t>{65536});
  // As many sites as neurons: nothing can be unequal.
  CHECK(BoundedShares({3, 1, 2}, 3) == std::vector<uint32_t>{65536, 65536, 65536});
  // A part of at least one of five neurons.
  CHECK(BoundedShares({100, 1}, 5)[1] >= 2 * 65536 / 5);
}

TEST_CASE("one site alone is never recut", "[control][parts]") {
  CHECK_FALSE(NextShares({{kMeanShare, 7}}, 100).has_value());
  CHECK_FALSE(NextShares({}, 100).has_value());
}

}  // namespace
}  // namespace tessera
