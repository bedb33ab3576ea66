#include "kernels/cpu/block_product.h"

#include <algorithm>

// Fused multiply-adds are spelled out. A CPU with neither of these instruction sets, and a sanitizer's build, calls the
// C library for each, which is slow and gives the same bits.
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && \
    !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define TESSERA_WIDE __attribute__((target("avx512f")))
#define TESSERA_NARROW __attribute__((target_clones("fma", "default")))
#else
#define TESSERA_NARROW
#endif
#define TESSERA_INLINE inline __attribute__((always_inline))

namespace tessera {
namespace {

// Multiplies kRows rows and kColumns columns, whose sums stay in registers.
template <int kRows, int kColumns>
TESSERA_INLINE void MultiplyTile(int64_t depth, const BlockFactors& factors, bool adds, float* c,
                                 int64_t c_row) {
  float sums[kRows][kColumns];
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kColumns; ++j) sums[i][j] = adds ? c[i * c_row + j] : 0.0f;
  }
  const float* a = factors.a;
  const float* b = factors.b;
  for (int64_t k = 0; k < depth; ++k) {
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const float x = a[i * factors.a_row];
#pragma omp simd
      for (int j = 0; j < kColumns; ++j) sums[i][j] = __builtin_fmaf(x, b[j], sums[i][j]);
    }
    a += factors.a_step;
    b += factors.b_row;
  }
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kColumns; ++j) c[i * c_row + j] = sums[i][j];
  }
}

// Multiplies kRows rows and any number of columns: whole tiles first, then the rest in tiles of one vector's lanes,
// which divide `columns`.
template <int kRows, int kColumns>
TESSERA_INLINE void MultiplyStrip(int64_t columns, int64_t depth, const BlockFactors& factors,
                                  bool adds, float* c, int64_t c_row) {
  BlockFactors own = factors;
  int64_t j = 0;
  for (; j + kColumns <= columns; j += kColumns) {
    own.b = factors.b + j;
    MultiplyTile<kRows, kColumns>(depth, own, adds, c + j, c_row);
  }
  for (; j < columns; j += kBlockProductLanes) {
    own.b = factors.b + j;
    MultiplyTile<kRows, kBlockProductLanes>(depth, own, adds, c + j, c_row);
  }
}

// Strips of kRows rows, and of fewer where they end.
template <int kRows, int kColumns>
TESSERA_INLINE void MultiplyStrips(int64_t rows, int64_t columns, int64_t depth,
                                   const BlockFactors& factors, bool adds, float* c,
                                   int64_t c_row) {
  BlockFactors own = factors;
  int64_t i = 0;
  for (; i + kRows <= rows; i += kRows) {
    own.a = factors.a + i * factors.a_row;
    MultiplyStrip<kRows, kColumns>(columns, depth, own, adds, c + i * c_row, c_row);
  }
  own.a = factors.a + i * factors.a_row;
  if constexpr (kRows > 1) {
    if (i < rows) {
      MultiplyStrips<kRows / 2, kColumns>(rows - i, columns, depth, own, adds, c + i * c_row,
                                          c_row);
    }
  }
}

#ifdef TESSERA_WIDE
TESSERA_WIDE void MultiplyWide(int64_t rows, int64_t columns, int64_t depth,
                               const BlockFactors& factors, bool adds, float* c, int64_t c_row) {
  MultiplyStrips<8, 32>(rows, columns, depth, factors, adds, c, c_row);
}
#endif

// Half as many registers, of half the width.
TESSERA_NARROW void MultiplyNarrow(int64_t rows, int64_t columns, int64_t depth,
                                   const BlockFactors& factors, bool adds, float* c,
                                   int64_t c_row) {
  MultiplyStrips<4, 16>(rows, columns, depth, factors, adds, c, c_row);
}

}  // namespace

void MultiplyBlock(int64_t rows, int64_t columns, int64_t depth, const BlockFactors& factors,
                   bool adds, float* c, int64_t c_row) {
#ifdef TESSERA_WIDE
  static const bool is_wide = __builtin_cpu_supports("avx512f") != 0;
  if (is_wide) return MultiplyWide(rows, columns, depth, factors, adds, c, c_row);
#endif
  MultiplyNarrow(rows, columns, depth, factors, adds, c, c_row);
}

}  // namespace tessera
