// What activation.cc runs.
#ifndef TESSERA_KERNELS_CUDA_ACTIVATION_KERNELS_H_
#define TESSERA_KERNELS_CUDA_ACTIVATION_KERNELS_H_

#include <cstdint>

#include "common/base/philox.h"
#include "kernels/cuda/vector_kernels.h"
#include "kernels/dropout_key.h"

namespace tessera::cuda {

struct ReluOp : Floats<1, 1> {
  TESSERA_HOST_DEVICE void operator()(int64_t, int, const Common&, const float* v, float* r) const {
    r[0] = v[0] < 0.0f ? 0.0f : v[0];
  }
};

// y, dy -> dx
struct ReluBackwardOp : Floats<2, 1> {
  TESSERA_HOST_DEVICE void operator()(int64_t, int, const Common&, const float* v, float* r) const {
    r[0] = v[0] <= 0.0f ? 0.0f : v[1];
  }
};

// Four elements from a multiple of 4 are one Philox block. A number below `drop` of its 24 upper
// bits drops its element.
struct DropoutOp {
  using In = float;
  using Out = float;
  using Common = PhiloxBlock;
  static constexpr int kIn = 1;
  static constexpr int kOut = 1;
  const float* in[1];
  float* out[1];
  const DropoutKey* key;  // read when the kernel runs
  uint64_t layer;
  uint32_t drop;
  float scale;
  TESSERA_HOST_DEVICE Common Prepare(int64_t i) const {
    return Philox(key->seed, tessera::Stream::kDropout, key->step,
                  key->rank << 48 | layer << 40 | static_cast<uint64_t>(i / 4));
  }
  TESSERA_HOST_DEVICE void operator()(int64_t, int k, const Common& block, const float* v,
                                      float* r) const {
    r[0] = block[k] >> 8 < drop ? 0.0f : v[0] * scale;
  }
};

}  // namespace tessera::cuda

#endif  // TESSERA_KERNELS_CUDA_ACTIVATION_KERNELS_H_
