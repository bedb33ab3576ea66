// Layers that look at one value at a time.
#ifndef TESSERA_KERNELS_ACTIVATION_H_
#define TESSERA_KERNELS_ACTIVATION_H_

#include <cstdint>

namespace tessera {

// Names one use of dropout. The same key and element give the same decision on every backend:
//   block = Philox(seed, kDropout, step, rank << 48 | layer << 40 | element / 4)
//   the element is dropped if UnitFloat(block[element % 4]) < probability
// with element = row * columns + column, so a forward and a backward pass agree without a stored
// mask.
struct DropoutKey {
  uint64_t seed = 0;
  uint64_t step = 0;
  uint64_t rank = 0;   // below 2^16
  uint64_t layer = 0;  // below 2^8
};

class ActivationKernel {
 public:
  virtual ~ActivationKernel() = default;

  // y = max(x, 0); a NaN stays one. y may be x.
  virtual void Relu(int64_t n, const float* x, float* y) = 0;
  // dx = dy where y > 0 (or NaN), else 0; y is what Relu wrote. dx may be dy.
  virtual void ReluBackward(int64_t n, const float* y, const float* dy, float* dx) = 0;

  // y = x / (1 - probability), or 0 where dropped. Also the gradient: dx from dy. y may be x.
  virtual void Dropout(int64_t n, const DropoutKey& key, double probability, const float* x,
                       float* y) = 0;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_ACTIVATION_H_
