// Pooling of images that lie channels last: [rows, height, width, channels]. Each channel by itself.
#ifndef TESSERA_KERNELS_POOLING_H_
#define TESSERA_KERNELS_POOLING_H_

#include "kernels/shape.h"

namespace tessera {

// No window lies in padding alone. x and y, and dx and dy, do not overlap. Sums are in f32, in the order
// of the window's places, row by row.
class PoolingKernel {
 public:
  virtual ~PoolingKernel() = default;

  // The largest value of each window; a NaN is larger than all others.
  virtual void Max(const ImagesShape& shape, const float* x, float* y) = 0;
  // dx: what those windows of dy say whose largest value it was, the first one of those equally large.
  virtual void MaxBackward(const ImagesShape& shape, const float* x, const float* dy,
                           float* dx) = 0;

  // The sum of each window, times 1 / its size: padding is zeros.
  virtual void Average(const ImagesShape& shape, const float* x, float* y) = 0;
  virtual void AverageBackward(const ImagesShape& shape, const float* dy, float* dx) = 0;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_POOLING_H_
