// Normalisation in groups on a GPU. Results do not depend on the GPU.
#ifndef TESSERA_KERNELS_CUDA_GROUP_NORM_H_
#define TESSERA_KERNELS_CUDA_GROUP_NORM_H_

#include "kernels/cuda/device.h"
#include "kernels/cuda/scratch.h"
#include "kernels/group_norm.h"

namespace tessera {

class CudaGroupNorm final : public GroupNormKernel {
 public:
  CudaGroupNorm(cuda::Device* device, CudaScratch* scratch)
      : device_(*device), scratch_(*scratch) {}

  void Forward(const GroupsShape& shape, double epsilon, const float* x, const Affine& affine,
               float* mean, float* inverse_sigma, float* y) override;
  void Backward(const GroupsShape& shape, const BackwardInput& in, WriteMode mode, float* dscale,
                float* dshift, float* dx) override;

 private:
  cuda::Device& device_;
  CudaScratch& scratch_;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_CUDA_GROUP_NORM_H_
