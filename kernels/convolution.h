// Convolutions of images, as deep learning has them: no kernel is turned round.
//
//   y[n, p, o] = b[o] + sum over the channels c and places (i, j) of the window:
//                W[o, c, i, j] x[n, p stride - padding + (i, j), c],   0 outside of the image
//
// Images lie channels last: x [rows, height, width, channels], y likewise. W is as in PyTorch:
// [channels of y, channels of x, window's height, window's width].
#ifndef TESSERA_KERNELS_CONVOLUTION_H_
#define TESSERA_KERNELS_CONVOLUTION_H_

#include <cstdint>

#include "kernels/shape.h"
#include "kernels/write_mode.h"

namespace tessera {

// T is the type of both factors, float or Bf16. Products of Bf16 are exact in f32; sums and results
// are f32 for both. There may be no rows; every extent of an image and of a window is at least 1, and
// `to` is what the window makes of `from`. Results do not overlap the factors.
//
// A kernel prepares itself for a shape at its first use; later calls with it allocate nothing.
template <typename T>
class ConvolutionKernel {
 public:
  virtual ~ConvolutionKernel() = default;

  // y = the convolution of x, plus `bias` in each place unless it is null.
  virtual void Forward(const ImagesShape& shape, const T* x, const T* weight, const float* bias,
                       float* y) = 0;
  // Writes dW, or adds to it.
  virtual void WeightGradient(const ImagesShape& shape, const T* x, const T* dy, WriteMode mode,
                              float* dweight) = 0;
  // Computes dx, which is overwritten.
  virtual void InputGradient(const ImagesShape& shape, const T* dy, const T* weight, float* dx) = 0;

  // Bytes of the device's memory that calls with this shape, or with fewer rows of it, take besides
  // their arguments, at most; a backend's kernels take the same ones in turn. 0 where the host's library
  // has its own.
  virtual int64_t ScratchBytes(const ImagesShape& shape) const = 0;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_CONVOLUTION_H_
