// Matrix products by cuBLAS.
#ifndef TESSERA_KERNELS_CUDA_LINEAR_H_
#define TESSERA_KERNELS_CUDA_LINEAR_H_

#include "kernels/bf16.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/memory.h"
#include "kernels/linear.h"

namespace tessera {

template <typename T>
class CudaLinear final : public LinearKernel<T> {
 public:
  CudaLinear(cuda::Device* device, cuda::Product::Factors factors)
      : device_(*device), factors_(factors) {}

  void Forward(const LinearShape& shape, const T* x, const T* weight, const float* bias,
               float* y) override;
  void WeightGradient(const LinearShape& shape, const T* x, const T* dy, WriteMode mode,
                      float* dweight) override;
  void InputGradient(const LinearShape& shape, const T* dy, const T* weight, float* dx) override;

 private:
  void Zero(float* values, int64_t size);

  cuda::Device& device_;
  const cuda::Product::Factors factors_;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_CUDA_LINEAR_H_
