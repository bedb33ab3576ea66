// Batch normalisation, a block of columns at a time.
#ifndef TESSERA_KERNELS_CPU_BATCH_NORM_H_
#define TESSERA_KERNELS_CPU_BATCH_NORM_H_

#include "kernels/batch_norm.h"
#include "kernels/cpu/threads.h"

namespace tessera {

// Threads share out the columns, so that no sum is split.
class CpuBatchNorm final : public BatchNormKernel {
 public:
  explicit CpuBatchNorm(const CpuThreads& threads) : threads_(threads) {}

  void Statistics(const MatrixShape& shape, double epsilon, const float* x, float* mean,
                  float* inverse_sigma) override;
  void AddToSums(const MatrixShape& shape, bool is_first, const float* x, double* sums) override;
  void StatisticsOfSums(const MatrixShape& shape, double epsilon, const double* sums, float* mean,
                        float* inverse_sigma) override;
  void Normalize(const MatrixShape& shape, const float* x, const float* mean,
                 const float* inverse_sigma, const Affine& affine, bool relu, float* y) override;
  void Backward(const MatrixShape& shape, const BackwardInput& in, WriteMode mode, float* dscale,
                float* dshift, float* dx) override;

 private:
  const CpuThreads threads_;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_CPU_BATCH_NORM_H_
