#include "worker/data/normalization.h"

#include <algorithm>
#include <cmath>

#include "common/base/check.h"

namespace tessera {
namespace {

// 1 / stddev must be finite in a float, also after a division by 255.
constexpr double kStddevMin = 1e-35;

double UsableStddev(double variance) {
  const double stddev = std::sqrt(variance);
  return stddev >= kStddevMin ? stddev : 1;
}

// Exact: 255^2 * kRowsMax fits.
Normalization Of(const U8Values& values, int64_t rows, int64_t features) {
  std::vector<uint64_t> sum(features), square_sum(features);
  const uint8_t* x = values.data();
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < features; ++j, ++x) {
      sum[j] += *x;
      square_sum[j] += uint32_t{*x} * *x;
    }
  }
  Normalization result{std::vector<double>(features), std::vector<double>(features)};
  const auto n = static_cast<double>(rows);
  for (int64_t j = 0; j < features; ++j) {
    const auto s = static_cast<unsigned __int128>(sum[j]);
    const unsigned __int128 scaled =
        static_cast<uint64_t>(rows) * static_cast<unsigned __int128>(square_sum[j]);
    result.mean[j] = static_cast<double>(sum[j]) / (n * 255);
    result.stddev[j] = UsableStddev(static_cast<double>(scaled - s * s) / (n * n * 255 * 255));
  }
  return result;
}

// The extremes tell a constant feature, whose rounded variance need not be 0.
struct Extremes {
  float least = HUGE_VALF;
  float most = -HUGE_VALF;

  void Add(float x) {
    least = std::min(least, x);
    most = std::max(most, x);
  }
};

// Two passes: the mean, then the squares around it.
Normalization Of(const F32Values& values, int64_t rows, int64_t features) {
  std::vector<double> mean(features), variance(features);
  std::vector<Extremes> extremes(features);
  const float* x = values.data();
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < features; ++j, ++x) {
      mean[j] += *x;
      extremes[j].Add(*x);
    }
  }
  for (double& m : mean) m /= static_cast<double>(rows);
  x = values.data();
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < features; ++j, ++x) variance[j] += (*x - mean[j]) * (*x - mean[j]);
  }
  for (int64_t j = 0; j < features; ++j) {
    const bool constant = extremes[j].least == extremes[j].most;
    if (constant) mean[j] = extremes[j].least;
    variance[j] = UsableStddev(constant ? 0 : variance[j] / static_cast<double>(rows));
  }
  return {std::move(mean), std::move(variance)};
}

// As above; the entries that are not stored add mean^2 each.
Normalization Of(const SparseValues& values, int64_t rows, int64_t features) {
  std::vector<double> mean(features), variance(features);
  std::vector<Extremes> extremes(features);
  std::vector<int64_t> stored(features);
  const size_t entries = values.value.size();
  for (size_t e = 0; e < entries; ++e) {
    const uint32_t j = values.feature[e];
    mean[j] += values.value[e];
    extremes[j].Add(values.value[e]);
    ++stored[j];
  }
  for (double& m : mean) m /= static_cast<double>(rows);
  for (size_t e = 0; e < entries; ++e) {
    const uint32_t j = values.feature[e];
    variance[j] += (values.value[e] - mean[j]) * (values.value[e] - mean[j]);
  }
  for (int64_t j = 0; j < features; ++j) {
    if (stored[j] < rows) extremes[j].Add(0);
    variance[j] += static_cast<double>(rows - stored[j]) * mean[j] * mean[j];
    const bool constant = extremes[j].least == extremes[j].most;
    if (constant) mean[j] = extremes[j].least;
    variance[j] = UsableStddev(constant ? 0 : variance[j] / static_cast<double>(rows));
  }
  return {std::move(mean), std::move(variance)};
}

}  // namespace

Normalization NormalizationOf(const Table& training) {
  TESSERA_CHECK(training.rows > 0);
  return std::visit(
      [&](const auto& values) { return Of(values, training.rows, training.features); },
      training.values);
}

}  // namespace tessera
