#include "kernels/cpu/batch_norm.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/base/vector_clones.h"

namespace tessera {
namespace {

// Columns that are worked on together: their f64 sums stay in the first-level cache.
constexpr int64_t kBlock = 256;
constexpr float kNoFloor = -std::numeric_limits<float>::infinity();

struct Columns {
  int64_t begin;
  int64_t width;  // at most kBlock
};

// The mean comes first, then the squares of distances to it: E[x^2] - E[x]^2 would cancel where the mean is large.
TESSERA_VECTOR_CLONES void StatisticsBlock(const MatrixShape& shape, Columns columns,
                                           double epsilon, const float* x, float* mean,
                                           float* inverse_sigma) {
  double center[kBlock] = {};
  double square[kBlock] = {};
  const double share = shape.rows > 0 ? 1.0 / static_cast<double>(shape.rows) : 0.0;
  for (int64_t row = 0; row < shape.rows; ++row) {
    const float* from = x + row * shape.columns + columns.begin;
#pragma omp simd
    for (int64_t i = 0; i < columns.width; ++i) center[i] += static_cast<double>(from[i]);
  }
#pragma omp simd
  for (int64_t i = 0; i < columns.width; ++i) center[i] *= share;
  for (int64_t row = 0; row < shape.rows; ++row) {
    const float* from = x + row * shape.columns + columns.begin;
#pragma omp simd
    for (int64_t i = 0; i < columns.width; ++i) {
      const double distance = static_cast<double>(from[i]) - center[i];
      square[i] += distance * distance;
    }
  }
  for (int64_t i = 0; i < columns.width; ++i) {
    mean[columns.begin + i] = static_cast<float>(center[i]);
    inverse_sigma[columns.begin + i] =
        static_cast<float>(1.0 / std::sqrt(square[i] * share + epsilon));
  }
}

// Adds the rows to the columns' sums one after the other, so that it does not matter which of them come in one part.
TESSERA_VECTOR_CLONES void AddBlockToSums(const MatrixShape& shape, Columns columns, const float* x,
                                          double* sums) {
  double* const pivot = sums + columns.begin;
  double* const distances = pivot + shape.columns;
  double* const squares = distances + shape.columns;
  double distance_sum[kBlock];
  double square_sum[kBlock];
  std::copy_n(distances, columns.width, distance_sum);
  std::copy_n(squares, columns.width, square_sum);
  for (int64_t row = 0; row < shape.rows; ++row) {
    const float* from = x + row * shape.columns + columns.begin;
#pragma omp simd
    for (int64_t i = 0; i < columns.width; ++i) {
      const double distance = static_cast<double>(from[i]) - pivot[i];
      distance_sum[i] += distance;
      square_sum[i] += distance * distance;
    }
  }
  std::copy_n(distance_sum, columns.width, distances);
  std::copy_n(square_sum, columns.width, squares);
}

// Computes y = max(floor, factor (x - mean) + shift), where no floor is minus infinity.
TESSERA_VECTOR_CLONES void NormalizeBlock(const MatrixShape& shape, Columns columns, const float* x,
                                          const float* mean, const float* inverse_sigma,
                                          const float* scale, const float* shift, float floor,
                                          float* y) {
  float factor[kBlock];
  float offset[kBlock];
  for (int64_t i = 0; i < columns.width; ++i) {
    const int64_t column = columns.begin + i;
    factor[i] = scale == nullptr ? inverse_sigma[column] : scale[column] * inverse_sigma[column];
    offset[i] = shift == nullptr ? 0.0f : shift[column];
  }
  const float* center = mean + columns.begin;
  for (int64_t row = 0; row < shape.rows; ++row) {
    const float* from = x + row * shape.columns + columns.begin;
    float* to = y + row * shape.columns + columns.begin;
#pragma omp simd
    for (int64_t i = 0; i < columns.width; ++i) {
      const float value = factor[i] * (from[i] - center[i]) + offset[i];
      to[i] = value < floor ? floor : value;  // A NaN passes.
    }
  }
}

struct Sums {
  double g[kBlock];        // of dy behind the mask
  double g_x_hat[kBlock];  // of that times the normalised x
};

// A value passes where its gate is above the floor. Without relu the gate is x and the floor minus
// infinity.
TESSERA_VECTOR_CLONES void BackwardSums(const MatrixShape& shape, Columns columns,
                                        const BatchNormKernel::BackwardInput& in, const float* gate,
                                        float floor, Sums* sums) {
  const float* mean = in.mean + columns.begin;
  const float* inverse_sigma = in.inverse_sigma + columns.begin;
  double* g = sums->g;
  double* g_x_hat = sums->g_x_hat;
  for (int64_t row = 0; row < shape.rows; ++row) {
    const int64_t at = row * shape.columns + columns.begin;
    const float* x = in.x + at;
    const float* dy = in.dy + at;
    const float* open = gate + at;
#pragma omp simd
    for (int64_t i = 0; i < columns.width; ++i) {
      const float passed = open[i] <= floor ? 0.0f : dy[i];
      const float x_hat = (x[i] - mean[i]) * inverse_sigma[i];
      g[i] += static_cast<double>(passed);
      g_x_hat[i] += static_cast<double>(passed) * static_cast<double>(x_hat);
    }
  }
}

// Stores sums that were formed in f64, rounded once.
void Put(Columns columns, const double* sums, WriteMode mode, float* gradient) {
  float* const to = gradient + columns.begin;
  for (int64_t i = 0; i < columns.width; ++i) {
    const double before = mode == WriteMode::kAdd ? static_cast<double>(to[i]) : 0.0;
    to[i] = static_cast<float>(before + sums[i]);
  }
}

// Computes dx = scale inverse_sigma (g - mean(g) - x_hat mean(g x_hat)).
TESSERA_VECTOR_CLONES void BackwardValues(const MatrixShape& shape, Columns columns,
                                          const BatchNormKernel::BackwardInput& in,
                                          const float* gate, float floor, const Sums& sums,
                                          float* dx) {
  float factor[kBlock];
  float mean_g[kBlock];
  float mean_g_x_hat[kBlock];
  const double share = 1.0 / static_cast<double>(shape.rows);
  for (int64_t i = 0; i < columns.width; ++i) {
    const int64_t column = columns.begin + i;
    factor[i] = in.scale == nullptr ? in.inverse_sigma[column]
                                    : in.scale[column] * in.inverse_sigma[column];
    mean_g[i] = static_cast<float>(sums.g[i] * share);
    mean_g_x_hat[i] = static_cast<float>(sums.g_x_hat[i] * share);
  }
  const float* mean = in.mean + columns.begin;
  const float* inverse_sigma = in.inverse_sigma + columns.begin;
  for (int64_t row = 0; row < shape.rows; ++row) {
    const int64_t at = row * shape.columns + columns.begin;
    const float* x = in.x + at;
    const float* dy = in.dy + at;
    const float* open = gate + at;
    float* to = dx + at;
#pragma omp simd
    for (int64_t i = 0; i < columns.width; ++i) {
      const float passed = open[i] <= floor ? 0.0f : dy[i];
      const float x_hat = (x[i] - mean[i]) * inverse_sigma[i];
      to[i] = factor[i] * (passed - mean_g[i] - x_hat * mean_g_x_hat[i]);
    }
  }
}

template <typename F>
void ForBlocks(const CpuThreads& threads, const MatrixShape& shape, const F& f) {
  threads.Split(shape.columns, 2 * shape.rows, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; block += kBlock) {
      f(Columns{block, std::min(kBlock, end - block)});
    }
  });
}

}  // namespace

void CpuBatchNorm::Statistics(const MatrixShape& shape, double epsilon, const float* x, float* mean,
                              float* inverse_sigma) {
  ForBlocks(threads_, shape, [&](Columns columns) {
    StatisticsBlock(shape, columns, epsilon, x, mean, inverse_sigma);
  });
}

void CpuBatchNorm::AddToSums(const MatrixShape& shape, bool is_first, const float* x,
                             double* sums) {
  // The pivot is the first row: distances to a value of the column's own size cancel far less than the values.
  if (is_first) {
    std::copy_n(x, shape.columns, sums);
    std::fill_n(sums + shape.columns, 2 * shape.columns, 0.0);
  }
  ForBlocks(threads_, shape, [&](Columns columns) { AddBlockToSums(shape, columns, x, sums); });
}

// With d the distances to the pivot: mean = pivot + E[d] and variance = E[d^2] - E[d]^2.
void CpuBatchNorm::StatisticsOfSums(const MatrixShape& shape, double epsilon, const double* sums,
                                    float* mean, float* inverse_sigma) {
  const double share = 1.0 / static_cast<double>(shape.rows);
  const double* const distances = sums + shape.columns;
  const double* const squares = distances + shape.columns;
  for (int64_t i = 0; i < shape.columns; ++i) {
    const double offset = distances[i] * share;
    const double variance = (squares[i] - distances[i] * offset) * share;
    mean[i] = static_cast<float>(sums[i] + offset);
    // A NaN stays one.
    inverse_sigma[i] =
        static_cast<float>(1.0 / std::sqrt((variance < 0.0 ? 0.0 : variance) + epsilon));
  }
}

void CpuBatchNorm::Normalize(const MatrixShape& shape, const float* x, const float* mean,
                             const float* inverse_sigma, const Affine& affine, bool relu,
                             float* y) {
  const float floor = relu ? 0.0f : kNoFloor;
  ForBlocks(threads_, shape, [&](Columns columns) {
    NormalizeBlock(shape, columns, x, mean, inverse_sigma, affine.scale, affine.shift, floor, y);
  });
}

void CpuBatchNorm::Backward(const MatrixShape& shape, const BackwardInput& in, WriteMode mode,
                            float* dscale, float* dshift, float* dx) {
  // With relu the forward pass kept y, whose sign says what passed; without it everything passes.
  const float* gate = in.y == nullptr ? in.x : in.y;
  const float floor = in.y == nullptr ? kNoFloor : 0.0f;
  ForBlocks(threads_, shape, [&](Columns columns) {
    Sums sums = {};
    BackwardSums(shape, columns, in, gate, floor, &sums);
    if (dscale != nullptr) Put(columns, sums.g_x_hat, mode, dscale);
    if (dshift != nullptr) Put(columns, sums.g, mode, dshift);
    if (dx != nullptr && shape.rows > 0) BackwardValues(shape, columns, in, gate, floor, sums, dx);
  });
}

}  // namespace tessera
