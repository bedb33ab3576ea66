// Tokens become vectors, with one for each place added:
//   y[row, place] = weight[token] + positions[place]
#ifndef TESSERA_KERNELS_EMBEDDING_H_
#define TESSERA_KERNELS_EMBEDDING_H_

#include <cstdint>

#include "kernels/write_mode.h"

namespace tessera {

struct EmbeddingShape {
  int64_t rows = 0;  // sequences
  int64_t places = 1;
  int64_t vocabulary = 1;
  int64_t units = 1;

  int64_t tokens() const { return rows * places; }
};

// Tokens are whole numbers in [0, vocabulary), as f32 [rows, places].
class EmbeddingKernel {
 public:
  virtual ~EmbeddingKernel() = default;

  // weight [vocabulary, units]; positions [places, units], or null for none; y [rows, places, units].
  virtual void Forward(const EmbeddingShape& shape, const float* tokens, const float* weight,
                       const float* positions, float* y) = 0;

  // dweight and dpositions are written as their modes say; a null one is not wanted. Sums are in the order of the
  // places of the batch, so that the same batch gives the same bits.
  virtual void Backward(const EmbeddingShape& shape, const float* tokens, const float* dy,
                        WriteMode weight_mode, float* dweight, WriteMode positions_mode,
                        float* dpositions) = 0;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_EMBEDDING_H_
