#include "kernels/cpu/vector.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/base/vector_clones.h"

namespace tessera {
namespace {

TESSERA_VECTOR_CLONES void AxpyLoop(int64_t n, float a, const float* x, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] += a * x[i];
}

TESSERA_VECTOR_CLONES void SubtractLoop(int64_t n, const float* a, const float* b, float* out) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) out[i] = a[i] - b[i];
}

TESSERA_VECTOR_CLONES void SgdLoop(int64_t n, SgdRates rates, const float* g, float* w) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) w[i] -= rates.learning_rate * (g[i] + rates.weight_decay * w[i]);
}

TESSERA_VECTOR_CLONES void MomentumLoop(int64_t n, SgdRates rates, const float* g, float* m,
                                        float* w) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    m[i] = rates.momentum * m[i] + (g[i] + rates.weight_decay * w[i]);
    w[i] -= rates.learning_rate * m[i];
  }
}

// Columns [begin, end) of x, at most kBlock of them.
constexpr int64_t kBlock = 256;
TESSERA_VECTOR_CLONES void ColumnSumsBlock(const MatrixShape& shape, int64_t begin, int64_t end,
                                           const float* x, float* sums) {
  double total[kBlock] = {};
  const int64_t width = end - begin;
  for (int64_t row = 0; row < shape.rows; ++row) {
    const float* from = x + row * shape.columns + begin;
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) total[i] += static_cast<double>(from[i]);
  }
  for (int64_t i = 0; i < width; ++i) sums[begin + i] = static_cast<float>(total[i]);
}

TESSERA_VECTOR_CLONES void RoundLoop(int64_t n, const float* x, Bf16* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = RoundToBf16(x[i]);
}

TESSERA_VECTOR_CLONES void WidenLoop(int64_t n, const Bf16* x, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = tessera::Widen(x[i]);
}

}  // namespace

void CpuVector::Axpy(int64_t n, float a, const float* x, float* y) {
  threads_.Split(
      n, 3, [&](int64_t begin, int64_t end) { AxpyLoop(end - begin, a, x + begin, y + begin); });
}

void CpuVector::Subtract(int64_t n, const float* a, const float* b, float* out) {
  threads_.Split(n, 3, [&](int64_t begin, int64_t end) {
    SubtractLoop(end - begin, a + begin, b + begin, out + begin);
  });
}

void CpuVector::Sgd(int64_t n, const SgdRates& rates, const float* g, float* m, float* w) {
  TESSERA_CHECK(m != nullptr || rates.momentum == 0);
  threads_.Split(n, 5, [&](int64_t begin, int64_t end) {
    if (m == nullptr) {
      SgdLoop(end - begin, rates, g + begin, w + begin);
    } else {
      MomentumLoop(end - begin, rates, g + begin, m + begin, w + begin);
    }
  });
}

void CpuVector::ColumnSums(const MatrixShape& shape, const float* x, float* sums) {
  threads_.Split(shape.columns, shape.rows, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; block += kBlock) {
      ColumnSumsBlock(shape, block, std::min(end, block + kBlock), x, sums);
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
