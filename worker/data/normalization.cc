#include "worker/data/normalization.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "common/base/check.h"

namespace tessera {
namespace {

// 1 / stddev must be finite in a float, also after a division by 255.
constexpr double kStddevMin = 1e-35;

double UsableStddev(double variance) {
  const double stddev = std::sqrt(variance);
  // A feature that is constant, or nearly, is only centred: 1 / stddev would blow up rounding.
  return stddev >= kStddevMin ? stddev : 1;
}

// The variance is (n sum x^2 - (sum x)^2) / n^2 in integers of 128 bits, and is rounded once.
// Exact: 255^2 * kRowsMax fits. `row_at(i)` is row i's values.
template <typename RowAt>
Normalization OfBytes(int64_t rows, int64_t features, const RowAt& row_at) {
  std::vector<uint64_t> sum(features), square_sum(features);
  for (int64_t i = 0; i < rows; ++i) {
    const uint8_t* const x = row_at(i);
    for (int64_t j = 0; j < features; ++j) {
      sum[j] += x[j];
      square_sum[j] += uint32_t{x[j]} * x[j];
    }
  }
  Normalization result{std::vector<double>(features), std::vector<double>(features)};
  const auto n = static_cast<double>(rows);
  for (int64_t j = 0; j < features; ++j) {
    const auto s = static_cast<unsigned __int128>(sum[j]);
    // Up to kRowsMax^2 * 255^2, which 64 bits do not hold.
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

// Two passes: the mean, then the squares around it. One pass would subtract two large sums, which cancel where the mean
// is large beside the deviation.
template <typename RowAt>
Normalization OfNumbers(int64_t rows, int64_t features, const RowAt& row_at) {
  std::vector<double> mean(features), variance(features);
  std::vector<Extremes> extremes(features);
  for (int64_t i = 0; i < rows; ++i) {
    const float* const x = row_at(i);
    for (int64_t j = 0; j < features; ++j) {
      mean[j] += x[j];
      extremes[j].Add(x[j]);
    }
  }
  for (double& m : mean) m /= static_cast<double>(rows);
  for (int64_t i = 0; i < rows; ++i) {
    const float* const x = row_at(i);
    for (int64_t j = 0; j < features; ++j) variance[j] += (x[j] - mean[j]) * (x[j] - mean[j]);
  }
  for (int64_t j = 0; j < features; ++j) {
    // A constant's mean may round, and its squares around the mean then are not 0.
    const bool constant = extremes[j].least == extremes[j].most;
    if (constant) mean[j] = extremes[j].least;
    variance[j] = UsableStddev(constant ? 0 : variance[j] / static_cast<double>(rows));
  }
  return {std::move(mean), std::move(variance)};
}

absl::StatusOr<Normalization> Of(const U8Values& values, int64_t rows, int64_t features) {
  return OfBytes(rows, features, [&](int64_t i) { return values.data() + i * features; });
}

absl::StatusOr<Normalization> Of(const F32Values& values, int64_t rows, int64_t features) {
  return OfNumbers(rows, features, [&](int64_t i) { return values.data() + i * features; });
}

absl::StatusOr<Normalization> Of(const StoredValues& values, int64_t rows, int64_t features) {
  // The file is read twice, rather than held.
  std::vector<float> read(features);
  absl::Status status;
  const auto row_at = [&](int64_t i) {
    // The first failure counts. The numbers of such a row are of no use, and the whole result is dropped.
    status.Update(values->Read(static_cast<uint32_t>(i), std::nullopt, read.data()));
    return read.data();
  };
  const Normalization result =
      values->is_bytes()
          ? OfBytes(rows, features,
                    [&](int64_t i) { return reinterpret_cast<const uint8_t*>(row_at(i)); })
          : OfNumbers(rows, features, row_at);
  if (!status.ok()) return status;
  return result;
}

// Numbers of tokens are no quantities.
absl::StatusOr<Normalization> Of(const HeldTokens&, int64_t, int64_t) { return Normalization(); }

// Two passes here, too; the entries that are not stored add mean^2 each.
absl::StatusOr<Normalization> Of(const SparseValues& values, int64_t rows, int64_t features) {
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
    // Zeros that are not stored belong to the feature's values.
    if (stored[j] < rows) extremes[j].Add(0);
    variance[j] += static_cast<double>(rows - stored[j]) * mean[j] * mean[j];
    const bool constant = extremes[j].least == extremes[j].most;
    if (constant) mean[j] = extremes[j].least;
    variance[j] = UsableStddev(constant ? 0 : variance[j] / static_cast<double>(rows));
  }
  return Normalization{std::move(mean), std::move(variance)};
}

// Each value `times` times.
// Channels lie one behind the other, each with all of its pixels.
std::vector<double> Repeated(const std::vector<double>& values, int64_t times) {
  std::vector<double> out;
  out.reserve(values.size() * times);
  for (const double value : values) out.insert(out.end(), times, value);
  return out;
}

// The first value of each part of `run`; empty where values of one part differ.
std::vector<double> FirstOfRuns(const std::vector<double>& values, int64_t run) {
  std::vector<double> out;
  for (auto begin = values.begin(); begin != values.end(); begin += run) {
    if (std::count(begin, begin + run, *begin) != run) return {};
    out.push_back(*begin);
  }
  return out;
}

}  // namespace

Normalization ExpandChannels(const Normalization& normalization, int64_t features) {
  const auto count = static_cast<int64_t>(normalization.mean.size());
  if (count <= 1 || count == features) return normalization;
  TESSERA_CHECK(features % count == 0);
  return {Repeated(normalization.mean, features / count),
          Repeated(normalization.stddev, features / count)};
}

Normalization JoinChannels(Normalization normalization, int64_t channels) {
  const auto count = static_cast<int64_t>(normalization.mean.size());
  // Already as few as channels, or cut in another way.
  if (count <= channels || channels < 1 || count % channels != 0) return normalization;
  std::vector<double> mean = FirstOfRuns(normalization.mean, count / channels);
  std::vector<double> stddev = FirstOfRuns(normalization.stddev, count / channels);
  if (mean.empty() || stddev.empty()) return normalization;
  return {std::move(mean), std::move(stddev)};
}

absl::StatusOr<Normalization> NormalizationOf(const Table& training) {
  TESSERA_CHECK(training.rows > 0);
  return std::visit(
      [&](const auto& values) { return Of(values, training.rows, training.features); },
      training.values);
}

}  // namespace tessera
