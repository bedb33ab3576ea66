// Rows of an embedding in loops of our own. Same bits on every CPU, with any number of threads.
#ifndef TESSERA_KERNELS_CPU_EMBEDDING_H_
#define TESSERA_KERNELS_CPU_EMBEDDING_H_

#include "kernels/cpu/threads.h"
#include "kernels/embedding.h"

namespace tessera {

class CpuEmbedding final : public EmbeddingKernel {
 public:
  explicit CpuEmbedding(const CpuThreads& threads) : threads_(threads) {}

  void Forward(const EmbeddingShape& shape, const float* tokens, const float* weight,
               const float* positions, float* y) override;
  void Backward(const EmbeddingShape& shape, const float* tokens, const float* dy,
                WriteMode weight_mode, float* dweight, WriteMode positions_mode,
                float* dpositions) override;

 private:
  const CpuThreads threads_;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_CPU_EMBEDDING_H_
