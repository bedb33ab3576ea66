// Batch normalisation on a GPU. Results do not depend on the GPU.
#ifndef TESSERA_KERNELS_CUDA_BATCH_NORM_H_
#define TESSERA_KERNELS_CUDA_BATCH_NORM_H_

#include "kernels/batch_norm.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/scratch.h"

namespace tessera {

class CudaBatchNorm final : public BatchNormKernel {
 public:
  CudaBatchNorm(cuda::Device* device, CudaScratch* scratch)
      : device_(*device), scratch_(*scratch) {}

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
  cuda::Device& device_;
  CudaScratch& scratch_;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_CUDA_BATCH_NORM_H_
