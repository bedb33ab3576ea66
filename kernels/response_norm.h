// Local response normalisation.  Krizhevsky, Sutskever, Hinton: ImageNet Classification with Deep Convolutional Neural
// Networks, NeurIPS 2012.
//
//   s_c = k + alpha / size * sum of x_j^2 over the channels j in [c - size / 2, c + (size - 1) / 2] that there are
//   y_c = x_c s_c^-beta
#ifndef TESSERA_KERNELS_RESPONSE_NORM_H_
#define TESSERA_KERNELS_RESPONSE_NORM_H_

#include <algorithm>
#include <cstdint>

#include "kernels/shape.h"

namespace tessera {

struct ResponseWindow {
  int64_t size = 1;
  double alpha = 0;
  double beta = 0;
  double k = 1;  // above 0

  // The channels in front of one and behind it that are summed up, where there are so many.
  int64_t front() const { return size / 2; }
  int64_t behind() const { return (size - 1) / 2; }
};

// Rows are the places of images; their columns are channels. Sums are in f32.
class ResponseNormKernel {
 public:
  virtual ~ResponseNormKernel() = default;

  // x and y do not overlap.
  virtual void Forward(const MatrixShape& shape, const ResponseWindow& window, const float* x,
                       float* y) = 0;
  // dx overlaps neither x nor dy.
  virtual void Backward(const MatrixShape& shape, const ResponseWindow& window, const float* x,
                        const float* dy, float* dx) = 0;

  // Bytes of the device's memory that calls with this shape, or with fewer rows, take besides their arguments. 0 where
  // they are some rows of the host's.
  virtual int64_t ScratchBytes(const MatrixShape& shape) const = 0;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_RESPONSE_NORM_H_
