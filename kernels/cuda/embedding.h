// Embeddings on a GPU.
#ifndef TESSERA_KERNELS_CUDA_EMBEDDING_H_
#define TESSERA_KERNELS_CUDA_EMBEDDING_H_

#include "kernels/cuda/device.h"
#include "kernels/embedding.h"

namespace tessera {

class CudaEmbedding final : public EmbeddingKernel {
 public:
  explicit CudaEmbedding(cuda::Device* device) : device_(*device) {}

  void Forward(const EmbeddingShape& shape, const float* tokens, const float* weight,
               const float* positions, float* y) override;
  void Backward(const EmbeddingShape& shape, const float* tokens, const float* dy,
                WriteMode weight_mode, float* dweight, WriteMode positions_mode,
                float* dpositions) override;

 private:
  cuda::Device& device_;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_CUDA_EMBEDDING_H_
