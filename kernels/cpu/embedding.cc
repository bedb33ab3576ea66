#include "kernels/cpu/embedding.h"

#include <algorithm>

#include "common/base/vector_clones.h"

namespace tessera {
namespace {

TESSERA_VECTOR_CLONES void CopyTokens(const EmbeddingShape& shape, int64_t begin, int64_t end,
                                      const float* tokens, const float* weight,
                                      const float* positions, float* y) {
  const int64_t units = shape.units;
  // Tokens are whole numbers in f32, as the input of every network is.
  for (int64_t i = begin; i < end; ++i) {
    const float* const from = weight + static_cast<int64_t>(tokens[i]) * units;
    float* const to = y + i * units;
    if (positions == nullptr) {
#pragma omp simd
      for (int64_t u = 0; u < units; ++u) to[u] = from[u];
    } else {
      const float* const place = positions + i % shape.places * units;
#pragma omp simd
      for (int64_t u = 0; u < units; ++u) to[u] = from[u] + place[u];
    }
  }
}

// Adds a range of each token's units to its row of the weight's gradient.
TESSERA_VECTOR_CLONES void AddTokens(const EmbeddingShape& shape, int64_t begin, int64_t end,
                                     const float* tokens, const float* dy, float* dweight) {
  for (int64_t i = 0; i < shape.tokens(); ++i) {
    const float* const from = dy + i * shape.units;
    float* const to = dweight + static_cast<int64_t>(tokens[i]) * shape.units;
#pragma omp simd
    for (int64_t u = begin; u < end; ++u) to[u] += from[u];
  }
}

// Adds a range of each row to what is there, or puts their sum there.
TESSERA_VECTOR_CLONES void SumRows(int64_t rows, int64_t size, int64_t begin, int64_t end,
                                   const float* dy, bool adds, float* sums) {
  if (!adds) std::fill(sums + begin, sums + end, 0.0f);
  for (int64_t row = 0; row < rows; ++row) {
    const float* const from = dy + row * size;
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) sums[i] += from[i];
  }
}

}  // namespace

void CpuEmbedding::Forward(const EmbeddingShape& shape, const float* tokens, const float* weight,
                           const float* positions, float* y) {
  threads_.SplitWhole(shape.tokens(), 3 * shape.units, [&](int64_t begin, int64_t end) {
    CopyTokens(shape, begin, end, tokens, weight, positions, y);
  });
}

void CpuEmbedding::Backward(const EmbeddingShape& shape, const float* tokens, const float* dy,
                            WriteMode weight_mode, float* dweight, WriteMode positions_mode,
                            float* dpositions) {
  if (dweight != nullptr) {
    if (weight_mode == WriteMode::kOverwrite) {
      threads_.Split(shape.vocabulary * shape.units, 1, [&](int64_t begin, int64_t end) {
        std::fill(dweight + begin, dweight + end, 0.0f);
      });
    }
    // Each thread has units of its own, so that nothing is sorted and a token's places keep their order.
    threads_.Split(shape.units, 3 * shape.tokens(), [&](int64_t begin, int64_t end) {
      AddTokens(shape, begin, end, tokens, dy, dweight);
    });
  }
  if (dpositions == nullptr) return;
  const int64_t size = shape.places * shape.units;
  threads_.Split(size, 3 * shape.rows, [&](int64_t begin, int64_t end) {
    // In parts that stay in the first-level cache.
    constexpr int64_t kPart = 4096;
    for (int64_t i = begin; i < end; i += kPart) {
      SumRows(shape.rows, size, i, std::min(end, i + kPart), dy, positions_mode == WriteMode::kAdd,
              dpositions);
    }
  });
}

}  // namespace tessera
