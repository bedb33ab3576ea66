// Loops over activations on a GPU.
#ifndef TESSERA_KERNELS_CUDA_ACTIVATION_H_
#define TESSERA_KERNELS_CUDA_ACTIVATION_H_

#include "kernels/activation.h"
#include "kernels/cuda/device.h"

namespace tessera {

class CudaActivation final : public ActivationKernel {
 public:
  explicit CudaActivation(cuda::Device* device) : device_(*device) {}

  void Relu(int64_t n, const float* x, float* y) override;
  void ReluBackward(int64_t n, const float* y, const float* dy, float* dx) override;
  void Apply(const ActivationFunction& function, int64_t n, const float* x, float* y) override;
  void ApplyBackward(const ActivationFunction& function, int64_t n, const float* of,
                     const float* dy, float* dx) override;
  void Dropout(const MatrixShape& shape, const DropoutKey* key, uint64_t layer, double probability,
               const float* x, float* y) override;

 private:
  cuda::Device& device_;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_CUDA_ACTIVATION_H_
