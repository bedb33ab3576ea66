// The matrix products of a linear layer: y = x W^T + b and its gradients.
//
// Everything is dense and row-major: x [rows, inputs], y [rows, outputs], W [outputs, inputs], b
// [outputs].
#ifndef TESSERA_KERNELS_LINEAR_H_
#define TESSERA_KERNELS_LINEAR_H_

#include "kernels/shape.h"
#include "kernels/write_mode.h"

namespace tessera {

// T is the type of both factors, float or Bf16. Products of Bf16 are exact in f32; sums and results
// are f32 for both. Any extent may be 0: an empty sum is 0. Results do not overlap the factors.
//
// A kernel prepares itself for a shape at its first use; later calls with it allocate nothing.
template <typename T>
class LinearKernel {
 public:
  virtual ~LinearKernel() = default;

  // y = x W^T, plus `bias` in each row unless it is null.
  virtual void Forward(const LinearShape& shape, const T* x, const T* weight, const float* bias,
                       float* y) = 0;
  // dW = dy^T x, or dW += dy^T x.
  virtual void WeightGradient(const LinearShape& shape, const T* x, const T* dy, WriteMode mode,
                              float* dweight) = 0;
  // dx = dy W. Overwrites.
  virtual void InputGradient(const LinearShape& shape, const T* dy, const T* weight, float* dx) = 0;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_LINEAR_H_
