#include "kernels/cpu/vector.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/base/check.h"
#include "common/base/vector_clones.h"
#include "common/rule/optimizer.h"

namespace tessera {
namespace {

TESSERA_VECTOR_CLONES void AxpyLoop(int64_t n, float a, const float* x, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] += a * x[i];
}

TESSERA_VECTOR_CLONES void AddLoop(int64_t n, const float* a, const float* b, float* out) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}

TESSERA_VECTOR_CLONES void SubtractLoop(int64_t n, const float* a, const float* b, float* out) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) out[i] = a[i] - b[i];
}

TESSERA_VECTOR_CLONES void BlendLoop(int64_t n, float a, const float* x, float b, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = a * x[i] + b * y[i];
}

TESSERA_VECTOR_CLONES void ScaleLoop(int64_t n, float factor, float* x) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

// The sum of squares over lanes, in their order, so that it does not depend on the register's width.
constexpr int64_t kLanes = 32;
TESSERA_VECTOR_CLONES double SquaresOf(int64_t n, const float* x) {
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
#pragma omp simd
    for (int64_t k = 0; k < kLanes; ++k) {
      const auto value = static_cast<double>(x[i + k]);
      lanes[k] += value * value;
    }
  }
  // The rest goes to the first lanes, in their order.
  for (; i < n; ++i) lanes[i % kLanes] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

// Values whose squares are summed by one thread, however many there are.
constexpr int64_t kSquaresPart = 65536;

// Columns [begin, end) of x, at most kBlock of them.
constexpr int64_t kBlock = 256;
TESSERA_VECTOR_CLONES void ColumnSumsBlock(const MatrixShape& shape, int64_t begin, int64_t end,
                                           const float* x, WriteMode mode, float* sums) {
  // Sums over many rows are kept in f64, and rounded once.
  double total[kBlock] = {};
  const int64_t width = end - begin;
  if (mode == WriteMode::kAdd) std::copy_n(sums + begin, width, total);
  for (int64_t row = 0; row < shape.rows; ++row) {
    const float* from = x + row * shape.columns + begin;
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) total[i] += static_cast<double>(from[i]);
  }
  for (int64_t i = 0; i < width; ++i) sums[begin + i] = static_cast<float>(total[i]);
}

// The matrix is turned in squares, whose rows and columns both stay in the nearest cache.
constexpr int64_t kSquare = 16;
// Turns one matrix, square by square.
void TransposeOne(const MatrixShape& shape, const float* x, float* y) {
  for (int64_t row = 0; row < shape.rows; row += kSquare) {
    const int64_t row_end = std::min(shape.rows, row + kSquare);
    for (int64_t column = 0; column < shape.columns; column += kSquare) {
      const int64_t column_end = std::min(shape.columns, column + kSquare);
      for (int64_t c = column; c < column_end; ++c) {
        for (int64_t r = row; r < row_end; ++r) y[c * shape.rows + r] = x[r * shape.columns + c];
      }
    }
  }
}

TESSERA_VECTOR_CLONES void RoundLoop(int64_t n, const float* x, Bf16* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = RoundToBf16(x[i]);
}

TESSERA_VECTOR_CLONES void WidenLoop(int64_t n, const Bf16* x, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = tessera::Widen(x[i]);
}

// The rule of the shards, a part of the entries on each thread.
class CpuOptimizer final : public OptimizerKernel {
 public:
  CpuOptimizer(std::unique_ptr<UpdateRule> rule, const CpuThreads& threads)
      : rule_(std::move(rule)), threads_(threads) {
    TESSERA_CHECK(rule_->state_count() <= kStatesMax);
  }

  void Step(const OptimizerNumbers* numbers, int64_t n, const float* g, float* const* state,
            float* w, Bf16* rounded) override {
    const int states = rule_->state_count();
    const auto step = [&](int64_t begin, int64_t end) {
      float* part[kStatesMax] = {};
      // The rule sees each thread's part as if it were the whole: entries do not depend on each other.
      for (int s = 0; s < states; ++s) part[s] = state[s] + begin;
      rule_->Apply(numbers->update, g + begin, w + begin, w + begin, part, end - begin);
    };
    // An entry is read with its gradient and states, and written back with the states.
    threads_.Split(n, 3 + 2 * states, [&](int64_t begin, int64_t end) {
      if (rounded == nullptr) return step(begin, end);
      // Rounding follows in tiles, while w is still in the cache.
      for (; begin < end; begin += kTile) {
        const int64_t tile_end = std::min(end, begin + kTile);
        step(begin, tile_end);
        RoundLoop(tile_end - begin, w + begin, rounded + begin);
      }
    });
  }

 private:
  static constexpr int kStatesMax = 2;
  static constexpr int64_t kTile = 2048;  // whose arrays stay in the nearest cache
  const std::unique_ptr<UpdateRule> rule_;
  const CpuThreads threads_;
};

}  // namespace

void CpuVector::Axpy(int64_t n, float a, const float* x, float* y) {
  threads_.Split(
      n, 3, [&](int64_t begin, int64_t end) { AxpyLoop(end - begin, a, x + begin, y + begin); });
}

void CpuVector::Add(int64_t n, const float* a, const float* b, float* out) {
  threads_.Split(n, 3, [&](int64_t begin, int64_t end) {
    AddLoop(end - begin, a + begin, b + begin, out + begin);
  });
}

void CpuVector::Subtract(int64_t n, const float* a, const float* b, float* out) {
  threads_.Split(n, 3, [&](int64_t begin, int64_t end) {
    SubtractLoop(end - begin, a + begin, b + begin, out + begin);
  });
}

void CpuVector::Blend(int64_t n, float a, const float* x, float b, float* y) {
  threads_.Split(n, 3, [&](int64_t begin, int64_t end) {
    BlendLoop(end - begin, a, x + begin, b, y + begin);
  });
}

void CpuVector::NormFactor(int64_t n, const float* x, const NormLimit& limit, float* factor) {
  // Parts have a fixed size, so the sum does not depend on the number of threads.
  const int64_t parts = (n + kSquaresPart - 1) / kSquaresPart;
  squares_.resize(static_cast<size_t>(parts));
  threads_.SplitWhole(parts, kSquaresPart, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      const int64_t first = part * kSquaresPart;
      squares_[part] = SquaresOf(std::min(kSquaresPart, n - first), x + first);
    }
  });
  double sum = 0;
  for (const double squares : squares_) sum += squares;
  // The factor that brings the norm down to the limit; `factor_max` applies where the norm is below it.
  const double wanted = static_cast<double>(limit.most) / (std::sqrt(sum) + limit.epsilon);
  // What is no number stays so.
  *factor = wanted > limit.factor_max ? limit.factor_max : static_cast<float>(wanted);
}

void CpuVector::ScaleBy(int64_t n, const float* factor, float* x) {
  // The norm was within the limit, and nothing needs to be touched.
  if (*factor == 1) return;
  threads_.Split(n, 2,
                 [&](int64_t begin, int64_t end) { ScaleLoop(end - begin, *factor, x + begin); });
}

std::unique_ptr<OptimizerKernel> CpuVector::MakeOptimizer(const v1::Optimizer& optimizer) {
  return std::make_unique<CpuOptimizer>(tessera::MakeOptimizer(optimizer), threads_);
}

void CpuVector::ColumnSums(const MatrixShape& shape, const float* x, WriteMode mode, float* sums) {
  // A thread takes whole columns, so no two of them write the same sum.
  threads_.Split(shape.columns, shape.rows, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; block += kBlock) {
      ColumnSumsBlock(shape, block, std::min(end, block + kBlock), x, mode, sums);
    }
  });
}

void CpuVector::Transpose(int64_t count, const MatrixShape& shape, const float* x, float* y) {
  // Matrices are split and not their rows, as a batch has many small ones.
  const int64_t size = shape.size();
  threads_.SplitWhole(count, size, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) TransposeOne(shape, x + i * size, y + i * size);
  });
}

void CpuVector::CopyBlock(const MatrixShape& shape, const float* x, int64_t x_stride, float* y,
                          int64_t y_stride) {
  threads_.Split(shape.rows, 2 * shape.columns, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      std::copy_n(x + row * x_stride, shape.columns, y + row * y_stride);
    }
  });
}

void CpuVector::Round(int64_t n, const float* x, Bf16* y) {
  threads_.Split(n, 2,
                 [&](int64_t begin, int64_t end) { RoundLoop(end - begin, x + begin, y + begin); });
}

void CpuVector::Widen(int64_t n, const Bf16* x, float* y) {
  threads_.Split(n, 2,
                 [&](int64_t begin, int64_t end) { WidenLoop(end - begin, x + begin, y + begin); });
}

}  // namespace tessera
