// Loops over whole arrays.
#ifndef TESSERA_KERNELS_CPU_VECTOR_H_
#define TESSERA_KERNELS_CPU_VECTOR_H_

#include <memory>
#include <vector>

#include "kernels/cpu/threads.h"
#include "kernels/vector.h"

namespace tessera {

class CpuVector final : public VectorKernel {
 public:
  explicit CpuVector(const CpuThreads& threads) : threads_(threads) {}

  void Axpy(int64_t n, float a, const float* x, float* y) override;
  void Add(int64_t n, const float* a, const float* b, float* out) override;
  void Subtract(int64_t n, const float* a, const float* b, float* out) override;
  void Blend(int64_t n, float a, const float* x, float b, float* y) override;
  void NormFactor(int64_t n, const float* x, const NormLimit& limit, float* factor) override;
  void ScaleBy(int64_t n, const float* factor, float* x) override;
  std::unique_ptr<OptimizerKernel> MakeOptimizer(const v1::Optimizer& optimizer) override;
  void ColumnSums(const MatrixShape& shape, const float* x, WriteMode mode, float* sums) override;
  void Transpose(int64_t count, const MatrixShape& shape, const float* x, float* y) override;
  void CopyBlock(const MatrixShape& shape, const float* x, int64_t x_stride, float* y,
                 int64_t y_stride) override;
  void Round(int64_t n, const float* x, Bf16* y) override;
  void Widen(int64_t n, const Bf16* x, float* y) override;

 private:
  const CpuThreads threads_;
  std::vector<double> squares_;  // of the parts of an array
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_CPU_VECTOR_H_
