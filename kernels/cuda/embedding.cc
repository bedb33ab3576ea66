#include "kernels/cuda/embedding.h"

#include "kernels/cuda/embedding_kernels.h"

namespace tessera {

void CudaEmbedding::Forward(const EmbeddingShape& shape, const float* tokens, const float* weight,
                            const float* positions, float* y) {
  const cuda::EmbedTokens kernel{{},     shape.tokens(), shape.places, shape.units,
                                 tokens, weight,         positions,    y};
  device_.Launch(kernel.blocks(), kernel);
}

void CudaEmbedding::Backward(const EmbeddingShape& shape, const float* tokens, const float* dy,
                             WriteMode weight_mode, float* dweight, WriteMode positions_mode,
                             float* dpositions) {
  if (dweight != nullptr) {
    // By word: each block sums the gradients of one token's rows in their order, as atomic sums would differ.
    const cuda::EmbeddingTokenSums kernel{
        shape.tokens(), shape.vocabulary, shape.units, tokens, dy, weight_mode == WriteMode::kAdd,
        dweight};
    device_.Launch(kernel.blocks(), kernel);
  }
  if (dpositions == nullptr) return;
  const cuda::EmbeddingPlaceSums kernel{
      {},        shape.rows, shape.places * shape.units, dy, positions_mode == WriteMode::kAdd,
      dpositions};
  device_.Launch(kernel.blocks(), kernel);
}

}  // namespace tessera
