// A linear layer on sparse rows: y = x W^T + b and the gradient of W, at the price of the columns
// that occur.
//
// W [outputs, inputs] is row-major, as everywhere, so a column is spread over as many cache lines
// as there are outputs. Reading or writing the columns of a batch costs those lines once:
//
//   Forward              reads W's lines
//   WeightGradient       reads and writes dW's, and where it overwrites clears those of the batch before
//   AddWeightGradient    reads and writes W's; there is no dW
#ifndef TESSERA_KERNELS_SPARSE_LINEAR_H_
#define TESSERA_KERNELS_SPARSE_LINEAR_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/shape.h"
#include "kernels/write_mode.h"

namespace tessera {

// In the host's memory, whatever the device; the arrays may be reused when a call returns.
//
// Rows of which only some entries are stored (CSR); all others are 0. Row r has the entries
// [begin[r], begin[r + 1]), whose columns ascend and are in [0, inputs). begin[0] need not be 0.
struct SparseRows {
  const int64_t* begin = nullptr;
  const int32_t* column = nullptr;
  const float* value = nullptr;
};

// The columns of a gradient that may hold something else than 0, ascending. Empty for an array of
// zeros.
struct TouchedColumns {
  std::vector<int32_t> columns;

  // A batch that has `present`, ascending, was written.
  void Note(const std::vector<int32_t>& present, WriteMode mode) {
    if (mode == WriteMode::kOverwrite) {
      columns = present;
      return;
    }
    const size_t before = columns.size();
    columns.insert(columns.end(), present.begin(), present.end());
    std::inplace_merge(columns.begin(), columns.begin() + before, columns.end());
    columns.erase(std::unique(columns.begin(), columns.end()), columns.end());
  }
};

// All of it in f32. Any extent may be 0. Sums run in the order of the columns (Forward) and of the
// rows (gradients), one rounding for each product and each sum: results do not depend on the number
// of threads.
//
// A kernel keeps scratch of SparseScratchBytes, which grows at first use.
class SparseLinearKernel {
 public:
  virtual ~SparseLinearKernel() = default;

  // y = x W^T, plus `bias` in each row unless it is null.
  virtual void Forward(const LinearShape& shape, const SparseRows& x, const float* weight,
                       const float* bias, float* y) = 0;
  // dW = dy^T x, or dW += dy^T x, where the sum of each entry is rounded before it is added. dW is 0 but
  // in `touched`, before and after: only the columns of both batches are written. Those of a batch that
  // is added join `touched`.
  virtual void WeightGradient(const LinearShape& shape, const SparseRows& x, const float* dy,
                              WriteMode mode, TouchedColumns* touched, float* dweight) = 0;
  // W += a dy^T x. The sum of each entry is rounded before it is multiplied by a, so that the bits
  // are those of a plain step along WeightGradient's dW.
  virtual void AddWeightGradient(const LinearShape& shape, const SparseRows& x, const float* dy,
                                 float a, float* weight) = 0;
};

// Outputs that a thread works on at a time.
constexpr int64_t kSparseBlockOutputs = 16;

// At most this much scratch for batches of `rows` rows with `entries` entries in all.
inline int64_t SparseScratchBytes(int64_t inputs, int64_t rows, int64_t entries, int threads) {
  const int64_t present = std::min(inputs, entries);
  // For each input its place among those that occur, and a bit; for each that occurs itself and
  // where its entries begin; for each entry its place, and by columns its row and its value.
  const int64_t lists = inputs * 4 + inputs / 8 + present * 12 + entries * 12 + 64;
  // On each thread a block of the weights that occur, and of y or dy.
  return lists + threads * (present + rows) * kSparseBlockOutputs * int64_t{sizeof(float)};
}

}  // namespace tessera

#endif  // TESSERA_KERNELS_SPARSE_LINEAR_H_
