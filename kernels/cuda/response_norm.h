// Local response normalisation on a GPU.
#ifndef TESSERA_KERNELS_CUDA_RESPONSE_NORM_H_
#define TESSERA_KERNELS_CUDA_RESPONSE_NORM_H_

#include "kernels/cuda/device.h"
#include "kernels/cuda/scratch.h"
#include "kernels/response_norm.h"

namespace tessera {

class CudaResponseNorm final : public ResponseNormKernel {
 public:
  CudaResponseNorm(cuda::Device* device, CudaScratch* scratch)
      : device_(*device), scratch_(*scratch) {}

  void Forward(const MatrixShape& shape, const ResponseWindow& window, const float* x,
               float* y) override;
  void Backward(const MatrixShape& shape, const ResponseWindow& window, const float* x,
                const float* dy, float* dx) override;
  int64_t ScratchBytes(const MatrixShape& shape) const override {
    return shape.size() * static_cast<int64_t>(sizeof(float));
  }

 private:
  cuda::Device& device_;
  CudaScratch& scratch_;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_CUDA_RESPONSE_NORM_H_
