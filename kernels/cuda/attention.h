// Attention on a GPU: in tiles of 32 places by 32 in f32; in bf16 by tensor cores, where heads have up to 64 columns.
#ifndef TESSERA_KERNELS_CUDA_ATTENTION_H_
#define TESSERA_KERNELS_CUDA_ATTENTION_H_

#include "kernels/attention.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/scratch.h"

namespace tessera {

class CudaAttention final : public AttentionKernel {
 public:
  CudaAttention(cuda::Device* device, CudaScratch* scratch)
      : device_(*device), scratch_(*scratch) {}

  void Forward(const AttentionShape& shape, const AttentionDropout& dropout, const float* qkv,
               float* y, float* log_sums) override;
  void Backward(const AttentionShape& shape, const AttentionDropout& dropout,
                const BackwardInput& in, float* dqkv) override;
  // What each query's weights share of the gradient.
  int64_t ScratchBytes(const AttentionShape& shape) const override {
    return shape.sums() * static_cast<int64_t>(sizeof(float));
  }

 private:
  cuda::Device& device_;
  CudaScratch& scratch_;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_CUDA_ATTENTION_H_
