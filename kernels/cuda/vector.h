// Loops over whole arrays on a GPU, optimizers among them.
#ifndef TESSERA_KERNELS_CUDA_VECTOR_H_
#define TESSERA_KERNELS_CUDA_VECTOR_H_

#include <memory>

#include "kernels/cuda/device.h"
#include "kernels/cuda/scratch.h"
#include "kernels/device_options.h"
#include "kernels/shortcuts.h"
#include "kernels/vector.h"

namespace tessera {

class CudaVector final : public VectorKernel {
 public:
  // Counts in `shortcuts`. Of the options it takes those of product steps.
  CudaVector(cuda::Device* device, CudaScratch* scratch, Shortcuts* shortcuts,
             const DeviceOptions& options)
      : device_(*device), scratch_(*scratch), shortcuts_(*shortcuts), options_(options) {}

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
  cuda::Device& device_;
  CudaScratch& scratch_;
  Shortcuts& shortcuts_;
  const DeviceOptions options_;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_CUDA_VECTOR_H_
