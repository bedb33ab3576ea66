// Products of matrices that lie in the nearest caches.
#ifndef TESSERA_KERNELS_CPU_BLOCK_PRODUCT_H_
#define TESSERA_KERNELS_CPU_BLOCK_PRODUCT_H_

#include <cstdint>

namespace tessera {

// Columns come in so many at a time.
constexpr int64_t kBlockProductLanes = 16;

// a(i, k) = a[i a_row + k a_step], b(k, j) = b[k b_row + j], c(i, j) = c[i c_row + j].
struct BlockFactors {
  const float* a;
  int64_t a_row, a_step;
  const float* b;
  int64_t b_row;
};

// c(i, j) = the sum of a(i, k) b(k, j) over k < depth, on top of c(i, j) where `adds`, for i < rows and j < columns, a
// multiple of kBlockProductLanes. c overlaps no factor. The calling thread does all of it.
//
// The sum is in the order of k by fused multiply-adds, whatever the sizes, so that an entry has the same bits on every
// CPU, and wherever it lies in its block.
void MultiplyBlock(int64_t rows, int64_t columns, int64_t depth, const BlockFactors& factors,
                   bool adds, float* c, int64_t c_row);

}  // namespace tessera

#endif  // TESSERA_KERNELS_CPU_BLOCK_PRODUCT_H_
