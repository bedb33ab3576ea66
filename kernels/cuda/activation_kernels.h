// What activation.cc runs.
#ifndef TESSERA_KERNELS_CUDA_ACTIVATION_KERNELS_H_
#define TESSERA_KERNELS_CUDA_ACTIVATION_KERNELS_H_

#include <cstdint>

#include "common/base/philox.h"
#include "kernels/activation_function.h"
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

// y = a function of x.
template <typename Function>
struct ApplyOp : Floats<1, 1> {
  Function function;
  TESSERA_HOST_DEVICE void operator()(int64_t, int, const Common&, const float* v, float* r) const {
    r[0] = function.Value(v[0]);
  }
};

// What the function's slope follows from, dy -> dx
template <typename Function>
struct ApplyBackwardOp : Floats<2, 1> {
  Function function;
  TESSERA_HOST_DEVICE void operator()(int64_t, int, const Common&, const float* v, float* r) const {
    r[0] = v[1] * function.Slope(v[0]);
  }
};

// Four elements from a multiple of 4 are one Philox block, counted from the minibatch's first. A number
// below `drop` of its 24 upper bits drops its element.
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
  int64_t columns;
  uint32_t drop;
  float scale;
  TESSERA_HOST_DEVICE Common Prepare(int64_t i) const {
    const uint64_t element =
        key->first_row * static_cast<uint64_t>(columns) + static_cast<uint64_t>(i);
    const PhiloxBlock block = Block(element / 4);
    const int first = static_cast<int>(element % 4);
    if (first == 0) return block;
    const PhiloxBlock next = Block(element / 4 + 1);
    PhiloxBlock both = {};
    // Places that the compiler knows, so that all of it stays in registers.
    TESSERA_UNROLL for (int k = 0; k < 4; ++k) {
      TESSERA_UNROLL for (int from = 1; from < 4; ++from) {
        if (from == first) both[k] = from + k < 4 ? block[(from + k) % 4] : next[(from + k) % 4];
      }
    }
    return both;
  }
  TESSERA_HOST_DEVICE void operator()(int64_t, int k, const Common& block, const float* v,
                                      float* r) const {
    r[0] = block[k] >> 8 < drop ? 0.0f : v[0] * scale;
  }

 private:
  TESSERA_HOST_DEVICE PhiloxBlock Block(uint64_t number) const {
    return Philox(key->seed, tessera::Stream::kDropout, key->A(layer), key->B(layer, number));
  }
};

}  // namespace tessera::cuda

#endif  // TESSERA_KERNELS_CUDA_ACTIVATION_KERNELS_H_
