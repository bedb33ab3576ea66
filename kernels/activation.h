// Layers that look at one value at a time.
#ifndef TESSERA_KERNELS_ACTIVATION_H_
#define TESSERA_KERNELS_ACTIVATION_H_

#include <cstdint>

#include "kernels/activation_function.h"
#include "kernels/dropout_key.h"
#include "kernels/shape.h"

namespace tessera {

class ActivationKernel {
 public:
  virtual ~ActivationKernel() = default;

  // y = max(x, 0); a NaN stays one. y may be x.
  virtual void Relu(int64_t n, const float* x, float* y) = 0;
  // dx = dy where y > 0 (or NaN), else 0; y is what Relu wrote. dx may be dy.
  virtual void ReluBackward(int64_t n, const float* y, const float* dy, float* dx) = 0;

  // y = the function of x. y may be x.
  virtual void Apply(const ActivationFunction& function, int64_t n, const float* x, float* y) = 0;
  // dx = dy times the function's slope, which follows from `of`: what Apply wrote where the function is kSlopeOfY, else
  // what it read. dx may be dy.
  virtual void ApplyBackward(const ActivationFunction& function, int64_t n, const float* of,
                             const float* dy, float* dx) = 0;

  // y = x / (1 - probability), or 0 where dropped. Also the gradient: dx from dy. y may be x. `key` is
  // in the device's memory and read when the kernel runs; `layer` is below 2^8.
  virtual void Dropout(const MatrixShape& shape, const DropoutKey* key, uint64_t layer,
                       double probability, const float* x, float* y) = 0;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_ACTIVATION_H_
