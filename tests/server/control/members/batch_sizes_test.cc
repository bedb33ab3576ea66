#include "server/control/members/batch_sizes.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

namespace tessera {
namespace {

constexpr int64_t kBatch = 64;

// Machines that need fixed + slow * rows seconds for a step.
struct Fleet {
  std::vector<double> slow;
  double fixed = 0;
  double noise = 0;
  std::mt19937 random{11};
  std::vector<int64_t> rows = std::vector<int64_t>(slow.size(), kBatch);

  std::vector<double> StepSeconds() const {
    std::vector<double> seconds;
    for (size_t i = 0; i < slow.size(); ++i) {
      seconds.push_back(fixed + slow[i] * static_cast<double>(rows[i]));
    }
    return seconds;
  }
  double Slowest() const {
    const std::vector<double> seconds = StepSeconds();
    return *std::max_element(seconds.begin(), seconds.end());
  }
  // False: nothing changes.
  bool Step() {
    std::uniform_real_distribution<double> off(1 - noise, 1 + noise);
    std::vector<MeasuredBatches> measured;
    for (size_t i = 0; i < slow.size(); ++i) {
      const double speed = off(random) / StepSeconds()[i];
      measured.push_back({rows[i], speed * static_cast<double>(rows[i]), speed});
    }
    const std::vector<int64_t> before = rows;
    rows = NextBatchSizes(measured, kBatch);
    return rows != before;
  }
};

TEST_CASE("where a step's time is that of its rows all take equally long after one change",
          "[control][batches]") {
  const double ratio = GENERATE(1.2, 2.0, 4.0);
  const size_t count = GENERATE(2, 3, 8);
  CAPTURE(ratio, count);
  Fleet fleet{std::vector<double>(count, 0.001)};
  fleet.slow[0] *= ratio;
  // All the work of a step, by machines that together do so many rows in a second.
  const double speed = static_cast<double>(count - 1) / 0.001 + 1 / (0.001 * ratio);
  const double best = static_cast<double>(count * kBatch) / speed;
  REQUIRE(fleet.Slowest() > 1.04 * best);
  CHECK(fleet.Step());
  // Rows are whole, and a slow one's last row is a large part of its minibatch.
  CHECK(fleet.Slowest() < best + 0.001 * ratio);
  CHECK_FALSE(fleet.Step());
}

TEST_CASE("what a step takes beside its rows slows the way to equal steps, and does not turn it",
          "[control][batches]") {
  Fleet fleet{{0.004, 0.001, 0.001, 0.002}, 0.1};
  double slowest = fleet.Slowest();
  int changes = 0;
  while (fleet.Step()) {
    REQUIRE(++changes <= 8);
    CHECK(fleet.Slowest() < slowest);
    CHECK(fleet.rows[0] == *std::min_element(fleet.rows.begin(), fleet.rows.end()));
    slowest = fleet.Slowest();
  }
  const std::vector<double> seconds = fleet.StepSeconds();
  const auto [least, most] = std::minmax_element(seconds.begin(), seconds.end());
  CHECK(*most <= 1.1 * *least);
}

TEST_CASE("noise below the threshold changes no size", "[control][batches]") {
  Fleet fleet{std::vector<double>(8, 0.001)};
  fleet.noise = 0.04;
  for (int i = 0; i < 1000; ++i) REQUIRE_FALSE(fleet.Step());
}

TEST_CASE("sizes have their sum, their bounds and their order, whatever the speeds",
          "[control][batches]") {
  std::mt19937 random(5);
  for (int i = 0; i < 3000; ++i) {
    const auto count = std::uniform_int_distribution<int64_t>(1, i % 10 == 0 ? 300 : 9)(random);
    const auto batch = std::uniform_int_distribution<int64_t>(1, i % 3 == 0 ? 5 : 500)(random);
    std::vector<MeasuredBatches> measured;
    for (int64_t k = 0; k < count; ++k) {
      const double speed = std::exp(std::uniform_real_distribution<double>(-8, 8)(random));
      measured.push_back({0, speed, speed / static_cast<double>(batch)});
    }
    CAPTURE(i, count, batch);
    const std::vector<int64_t> rows = NextBatchSizes(measured, batch);
    REQUIRE(rows.size() == static_cast<size_t>(count));
    REQUIRE(std::accumulate(rows.begin(), rows.end(), int64_t{0}) == count * batch);
    for (size_t a = 0; a < rows.size(); ++a) {
      REQUIRE(rows[a] >= std::min(batch, std::max<int64_t>(2, batch / 8)));
      REQUIRE(rows[a] <= 4 * batch);
      for (size_t b = 0; b < rows.size(); ++b) {
        if (measured[a].rows_per_second < measured[b].rows_per_second) {
          REQUIRE(rows[a] <= rows[b] + 1);
        }
      }
    }
  }
}

TEST_CASE("while a speed is not known sizes stay, and who has none yet gets the mean",
          "[control][batches]") {
  using Rows = std::vector<int64_t>;
  // Nobody knows anything yet.
  CHECK(NextBatchSizes({{0, 0, 0}, {0, 0, 0}, {0, 0, 0}}, kBatch) == Rows{64, 64, 64});
  // One is not known, and all have their sizes.
  CHECK(NextBatchSizes({{96, 96, 1}, {32, 0, 0}}, kBatch) == Rows{96, 32});
  // The second has just come: it counts as fast as the others are on average.
  CHECK(NextBatchSizes({{96, 96, 1}, {0, 0, 0}, {32, 32, 1}}, kBatch) == Rows{96, 64, 32});
  // The third has gone, and its rows are the others' now.
  CHECK(NextBatchSizes({{96, 96, 1}, {64, 32, 0.5}}, kBatch) == Rows{96, 32});
  // Where no speed is known at present, or one alone, sizes say who was how fast.
  CHECK(NextBatchSizes({{90, 0, 0}, {30, 0, 0}}, kBatch) == Rows{96, 32});
  CHECK(NextBatchSizes({{90, 180, 2}, {30, 0, 0}}, kBatch) == Rows{96, 32});
  CHECK(NextBatchSizes({{90, 0, 0}, {0, 0, 0}, {30, 0, 0}}, kBatch) == Rows{96, 64, 32});
}

TEST_CASE("what nobody can have is no speed", "[control][batches]") {
  MemberRecord member;
  const auto said = [&](double speed, uint64_t steps, uint64_t rows) {
    member.progress.set_steps_per_second(speed);
    member.progress.set_speed_steps(steps);
    member.progress.set_batch_rows(rows);
    return BatchesOf(member, 40, kBatch).rows_per_second;
  };
  CHECK(said(2, 20, 50) == 100);
  CHECK(BatchesOf(member, 40, kBatch).rows == 40);
  CHECK(said(2, 3, 50) == 0);    // too few steps
  CHECK(said(0, 20, 50) == 0);   // none known
  CHECK(said(2, 20, 0) == 0);    // an older worker, which does not say what it measured
  CHECK(said(2, 20, 257) == 0);  // more rows than anybody is given
  CHECK(said(2, 20, ~uint64_t{0}) == 0);
}

}  // namespace
}  // namespace tessera
