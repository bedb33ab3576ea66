// What linear.cc runs beside the products.
#ifndef TESSERA_KERNELS_CUDA_LINEAR_KERNELS_H_
#define TESSERA_KERNELS_CUDA_LINEAR_KERNELS_H_

#include "kernels/cuda/tiles.h"

namespace tessera::cuda {

// The bias in each row, before the product is added.
struct BiasOp {
  static constexpr int kIn = 0;
  struct Column {
    float bias;
  };
  const float* in[1] = {nullptr};
  const float* bias;
  float* out;
  TESSERA_HOST_DEVICE Column At(int64_t c) const { return {bias[c]}; }
  TESSERA_HOST_DEVICE float operator()(const Column& column, const float*) const {
    return column.bias;
  }
};

}  // namespace tessera::cuda

#endif  // TESSERA_KERNELS_CUDA_LINEAR_KERNELS_H_
