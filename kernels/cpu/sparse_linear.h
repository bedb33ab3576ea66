// Products with sparse rows, sixteen outputs at a time.
//
// The present columns of sixteen rows of W are gathered into a panel [present, 16], which stays in
// the second-level cache; then an entry of x costs one multiply-add of sixteen lanes. Gradients go
// the other way: sums for each present column in a panel, then out to the rows.
#ifndef TESSERA_KERNELS_CPU_SPARSE_LINEAR_H_
#define TESSERA_KERNELS_CPU_SPARSE_LINEAR_H_

#include <vector>

#include "kernels/cpu/threads.h"
#include "kernels/sparse_columns.h"
#include "kernels/sparse_linear.h"

namespace tessera {

// Threads share out the outputs.
class CpuSparseLinear final : public SparseLinearKernel {
 public:
  explicit CpuSparseLinear(const CpuThreads& threads) : threads_(threads) {}

  void Forward(const LinearShape& shape, const SparseRows& x, const float* weight,
               const float* bias, float* y) override;
  void WeightGradient(const LinearShape& shape, const SparseRows& x, const float* dy,
                      WriteMode mode, TouchedColumns* touched, float* dweight) override;
  void AddWeightGradient(const LinearShape& shape, const SparseRows& x, const float* dy, float a,
                         float* weight) override;

 private:
  struct Scratch {
    std::vector<float> panel;  // [present, 16]
    std::vector<float> block;  // [rows, 16]: of y, or of dy
  };

  // Calls f(first output, outputs up to 16, scratch) for each block, on all threads.
  template <typename F>
  void ForBlocks(const LinearShape& shape, const F& f);
  // The panel of dy^T x for one block.
  void SumColumns(const LinearShape& shape, const float* dy, int64_t first, int64_t count,
                  Scratch* scratch) const;

  const CpuThreads threads_;
  std::vector<Scratch> scratch_;  // one for each thread
  SparseColumns batch_;           // of the batch at hand
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_CPU_SPARSE_LINEAR_H_
