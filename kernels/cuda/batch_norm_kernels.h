// What batch_norm.cc runs.
#ifndef TESSERA_KERNELS_CUDA_BATCH_NORM_KERNELS_H_
#define TESSERA_KERNELS_CUDA_BATCH_NORM_KERNELS_H_

#include <cmath>
#include <cstdint>

#include "kernels/cuda/tiles.h"

namespace tessera::cuda {

// The statistics of a column from its first value and the sums of the distances to it and of their squares.
TESSERA_HOST_DEVICE inline void StoreStatistics(double pivot, const double* sums, int64_t rows,
                                                double epsilon, float* mean, float* inverse_sigma) {
  const double share = rows == 0 ? 0.0 : 1.0 / static_cast<double>(rows);
  const double offset = sums[0] * share;
  const double variance = (sums[1] - sums[0] * offset) * share;
  *mean = static_cast<float>(pivot + offset);
  *inverse_sigma = static_cast<float>(1.0 / std::sqrt((variance < 0.0 ? 0.0 : variance) + epsilon));
}

// One reading of x: sums of the distances to the column's first value, and of their squares. In f64
// that is as good as distances to the mean unless the first value is a million deviations away.
struct StatisticsOp {
  static constexpr int kSums = 2;
  static constexpr int kIn = 1;
  struct Column {
    double pivot;
  };
  const float* x;
  int64_t rows;
  double epsilon;
  float* mean;
  float* inverse_sigma;
  TESSERA_HOST_DEVICE Column At(int64_t c) const {
    return {rows == 0 ? 0.0 : static_cast<double>(x[c])};
  }
  TESSERA_HOST_DEVICE void Load(int64_t i, float* v) const { v[0] = x[i]; }
  TESSERA_HOST_DEVICE void Add(const Column& column, const float* v, double* sums) const {
    const double distance = static_cast<double>(v[0]) - column.pivot;
    sums[0] += distance;
    sums[1] += distance * distance;
  }
  TESSERA_HOST_DEVICE void Finish(int64_t c, const double* sums) const {
    StoreStatistics(At(c).pivot, sums, rows, epsilon, mean + c, inverse_sigma + c);
  }
};

// A part of a sample, added to `to`: [3, columns] of pivots, distances and squares.
struct SampleSumsOp {
  static constexpr int kSums = 2;
  static constexpr int kIn = 1;
  struct Column {
    double pivot;
  };
  const float* x;
  int64_t columns;
  bool is_first;
  double* to;
  TESSERA_HOST_DEVICE Column At(int64_t c) const {
    return {is_first ? static_cast<double>(x[c]) : to[c]};
  }
  TESSERA_HOST_DEVICE void Load(int64_t i, float* v) const { v[0] = x[i]; }
  TESSERA_HOST_DEVICE void Add(const Column& column, const float* v, double* sums) const {
    const double distance = static_cast<double>(v[0]) - column.pivot;
    sums[0] += distance;
    sums[1] += distance * distance;
  }
  TESSERA_HOST_DEVICE void Finish(int64_t c, const double* sums) const {
    if (is_first) to[c] = static_cast<double>(x[c]);
    for (int s = 0; s < kSums; ++s) {
      double* const sum = to + (s + 1) * columns + c;
      *sum = is_first ? sums[s] : *sum + sums[s];
    }
  }
};

// The statistics of a whole sample from its sums, which are those of SampleSumsOp.
struct SampleStatisticsOp {
  static constexpr int kSums = 2;
  const double* pivots;
  int64_t rows;
  double epsilon;
  float* mean;
  float* inverse_sigma;
  TESSERA_HOST_DEVICE void Finish(int64_t c, const double* sums) const {
    StoreStatistics(pivots[c], sums, rows, epsilon, mean + c, inverse_sigma + c);
  }
};

// y = max(floor, factor (x - mean) + shift), where no floor is minus infinity.
struct NormalizeOp {
  static constexpr int kIn = 1;
  struct Column {
    float factor, center, offset;
  };
  const float* in[1];
  float* out;
  const float* mean;
  const float* inverse_sigma;
  const float* scale;  // null: 1
  const float* shift;  // null: 0
  float floor;
  TESSERA_HOST_DEVICE Column At(int64_t c) const {
    return {scale == nullptr ? inverse_sigma[c] : scale[c] * inverse_sigma[c], mean[c],
            shift == nullptr ? 0.0f : shift[c]};
  }
  TESSERA_HOST_DEVICE float operator()(const Column& column, const float* v) const {
    const float value = column.factor * (v[0] - column.center) + column.offset;
    return value < floor ? floor : value;  // A NaN passes.
  }
};

// Sums of dy behind the mask, g, and of g times the normalised x. A value passes where its gate is
// above the floor; without relu the gate is x and the floor minus infinity.
struct BackwardSumsOp {
  static constexpr int kSums = 2;
  static constexpr int kIn = 3;
  struct Column {
    float mean, inverse_sigma;
  };
  const float* x;
  const float* dy;
  const float* gate;
  float floor;
  const float* mean;
  const float* inverse_sigma;
  double share;   // 1 / rows
  bool adds;      // to dscale and dshift
  float* dscale;  // null: not wanted
  float* dshift;  // null: not wanted
  float* mean_g;  // of rows
  float* mean_g_x_hat;
  TESSERA_HOST_DEVICE Column At(int64_t c) const { return {mean[c], inverse_sigma[c]}; }
  TESSERA_HOST_DEVICE void Load(int64_t i, float* v) const {
    v[0] = x[i];
    v[1] = dy[i];
    v[2] = gate[i];
  }
  TESSERA_HOST_DEVICE void Add(const Column& column, const float* v, double* sums) const {
    const float passed = v[2] <= floor ? 0.0f : v[1];
    const float x_hat = (v[0] - column.mean) * column.inverse_sigma;
    sums[0] += static_cast<double>(passed);
    sums[1] += static_cast<double>(passed) * static_cast<double>(x_hat);
  }
  TESSERA_HOST_DEVICE void Finish(int64_t c, const double* sums) const {
    if (dshift != nullptr) StoreSum(sums[0], adds, dshift + c);
    if (dscale != nullptr) StoreSum(sums[1], adds, dscale + c);
    mean_g[c] = static_cast<float>(sums[0] * share);
    mean_g_x_hat[c] = static_cast<float>(sums[1] * share);
  }
};

// dx = scale inverse_sigma (g - mean(g) - x_hat mean(g x_hat)).  Inputs x, dy, gate.
struct BackwardValuesOp {
  static constexpr int kIn = 3;
  struct Column {
    float factor, mean, inverse_sigma, mean_g, mean_g_x_hat;
  };
  const float* in[3];
  float* out;
  float floor;
  const float* mean;
  const float* inverse_sigma;
  const float* scale;  // null: 1
  const float* mean_g;
  const float* mean_g_x_hat;
  TESSERA_HOST_DEVICE Column At(int64_t c) const {
    return {scale == nullptr ? inverse_sigma[c] : scale[c] * inverse_sigma[c], mean[c],
            inverse_sigma[c], mean_g[c], mean_g_x_hat[c]};
  }
  TESSERA_HOST_DEVICE float operator()(const Column& column, const float* v) const {
    const float passed = v[2] <= floor ? 0.0f : v[1];
    const float x_hat = (v[0] - column.mean) * column.inverse_sigma;
    return column.factor * (passed - column.mean_g - x_hat * column.mean_g_x_hat);
  }
};

}  // namespace tessera::cuda

#endif  // TESSERA_KERNELS_CUDA_BATCH_NORM_KERNELS_H_
