// Pooling on a GPU.
#ifndef TESSERA_KERNELS_CUDA_POOLING_H_
#define TESSERA_KERNELS_CUDA_POOLING_H_

#include "kernels/cuda/device.h"
#include "kernels/pooling.h"

namespace tessera {

class CudaPooling final : public PoolingKernel {
 public:
  explicit CudaPooling(cuda::Device* device) : device_(*device) {}

  void Max(const ImagesShape& shape, const float* x, float* y) override;
  void MaxBackward(const ImagesShape& shape, const float* x, const float* dy, float* dx) override;
  void Average(const ImagesShape& shape, const float* x, float* y) override;
  void AverageBackward(const ImagesShape& shape, const float* dy, float* dx) override;

 private:
  // A thread, or one for four channels, for each value of images like `cut`. `x` or `dy` may be null. `out`
  // has images like `made`.
  template <template <bool> class Kernel>
  void Launch(const ImagesShape& shape, const Image& cut, const Image& made, const float* x,
              const float* dy, float* out);

  cuda::Device& device_;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_CUDA_POOLING_H_
