// Products with sparse rows, sixteen outputs at a time.
//
// The present columns of sixteen rows of W are gathered into a panel [present, 16], which stays in
// the second-level cache; then an entry of x costs one multiply-add of sixteen lanes. Gradients go
// the other way: sums for each present column in a panel, then out to the rows.
#ifndef TESSERA_KERNELS_CPU_SPARSE_LINEAR_H_
#define TESSERA_KERNELS_CPU_SPARSE_LINEAR_H_

#include <vector>

#include "kernels/cpu/threads.h"
#include "kernels/sparse_linear.h"

namespace tessera {

// Threads share out the outputs.
class CpuSparseLinear final : public SparseLinearKernel {
 public:
  explicit CpuSparseLinear(const CpuThreads& threads) : threads_(threads) {}

  void Forward(const LinearShape& shape, const SparseRows& x, const float* weight,
               const float* bias, float* y) override;
  void WeightGradient(const LinearShape& shape, const SparseRows& x, const float* dy,
                      TouchedColumns* touched, float* dweight) override;
  void AddWeightGradient(const LinearShape& shape, const SparseRows& x, const float* dy, float a,
                         float* weight) override;

 private:
  struct Scratch {
    std::vector<float> panel;  // [present, 16]
    std::vector<float> block;  // [rows, 16]: of y, or of dy
  };

  // Sets first_, entries_, columns_, and place_ of each column.
  void FindColumns(const LinearShape& shape, const SparseRows& x);
  // Sets slot_.
  void PlaceEntries(const SparseRows& x);
  // Sets by_column_.
  void SortByColumn(const LinearShape& shape, const SparseRows& x);
  // Calls f(first output, outputs up to 16, scratch) for each block, on all threads.
  template <typename F>
  void ForBlocks(const LinearShape& shape, const F& f);
  // The panel of dy^T x for one block.
  void SumColumns(const LinearShape& shape, const float* dy, int64_t first, int64_t count,
                  Scratch* scratch) const;

  const CpuThreads threads_;
  std::vector<Scratch> scratch_;  // one for each thread

  // The batch at hand: its entries, and the columns that occur in it, ascending.
  int64_t first_ = 0;
  int64_t entries_ = 0;
  std::vector<int32_t> columns_;
  std::vector<int32_t> place_;     // by input: its index in columns_, where it occurs
  std::vector<uint64_t> present_;  // a bit for each input; all 0 between calls
  std::vector<int32_t> slot_;      // by entry: the place of its column
  // The entries by columns, rows ascending: column i has [begin[i], begin[i + 1]).
  struct ByColumn {
    std::vector<int64_t> begin;
    std::vector<int32_t> row;
    std::vector<float> value;
  } by_column_;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_CPU_SPARSE_LINEAR_H_
