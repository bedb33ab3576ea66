// One pass of a convolution, as a library of the GPU's computes it.
#ifndef TESSERA_KERNELS_CUDA_CONVOLUTION_PASS_H_
#define TESSERA_KERNELS_CUDA_CONVOLUTION_PASS_H_

#include "kernels/shape.h"

namespace tessera::cuda {

// c = the pass over a and b, + beta c. Everything is f32. Images lie channels last, and so do weights:
// [channels of y, window's height, window's width, channels of x / groups]. There are rows. Addresses are multiples
// of kAlignment.
struct ConvolutionPass {
  static constexpr int64_t kAlignment = 16;
  // The most workspace that the library gets; an algorithm that wants more is not taken.
  static constexpr int64_t kWorkspaceBytesMax = int64_t{64} << 20;

  enum class Kind {
    kForward,         // x, weights -> y
    kWeightGradient,  // x, dy -> dweights
    kInputGradient,   // dy, weights -> dx
  };
  Kind kind = Kind::kForward;
  bool tf32 = false;  // factors are rounded to 10 bits of mantissa; those of bf16 have no more
  ImagesShape shape;
  const float* a = nullptr;
  const float* b = nullptr;
  float beta = 0;
  float* c = nullptr;
};

}  // namespace tessera::cuda

#endif  // TESSERA_KERNELS_CUDA_CONVOLUTION_PASS_H_
