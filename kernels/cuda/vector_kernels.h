// What vector.cc runs, expression by expression as common/rule and kernels/cpu have it: compiled
// without fused multiply-adds, the bits are theirs.
#ifndef TESSERA_KERNELS_CUDA_VECTOR_KERNELS_H_
#define TESSERA_KERNELS_CUDA_VECTOR_KERNELS_H_

#include <cmath>
#include <cstdint>

#include "kernels/bf16.h"
#include "kernels/cuda/tiles.h"

namespace tessera::cuda {

// Of elements in f32.
template <int inputs, int outputs>
struct Floats : Alone {
  using In = float;
  using Out = float;
  static constexpr int kIn = inputs;
  static constexpr int kOut = outputs;
  const float* in[inputs];
  float* out[outputs];
};

// x, y -> y
struct AxpyOp : Floats<2, 1> {
  float a;
  TESSERA_HOST_DEVICE void operator()(int64_t, int, const Common&, const float* v, float* r) const {
    r[0] = v[1] + a * v[0];
  }
};

struct SubtractOp : Floats<2, 1> {
  TESSERA_HOST_DEVICE void operator()(int64_t, int, const Common&, const float* v, float* r) const {
    r[0] = v[0] - v[1];
  }
};

struct RoundOp : Alone {
  using In = float;
  using Out = Bf16;
  static constexpr int kIn = 1;
  static constexpr int kOut = 1;
  const float* in[1];
  Bf16* out[1];
  TESSERA_HOST_DEVICE void operator()(int64_t, int, const Common&, const float* v, Bf16* r) const {
    r[0] = RoundToBf16(v[0]);
  }
};

struct WidenOp : Alone {
  using In = Bf16;
  using Out = float;
  static constexpr int kIn = 1;
  static constexpr int kOut = 1;
  const Bf16* in[1];
  float* out[1];
  TESSERA_HOST_DEVICE void operator()(int64_t, int, const Common&, const Bf16* v, float* r) const {
    r[0] = tessera::Widen(v[0]);
  }
};

// Sums of columns.
struct SumOp {
  static constexpr int kSums = 1;
  struct Column {};
  const float* x;
  float* sums;
  TESSERA_HOST_DEVICE Column At(int64_t) const { return {}; }
  TESSERA_HOST_DEVICE void Add(const Column&, int64_t i, double* total) const {
    total[0] += static_cast<double>(x[i]);
  }
  TESSERA_HOST_DEVICE void Finish(int64_t c, const double* total) const {
    sums[c] = static_cast<float>(total[0]);
  }
};

// Optimizers. Inputs g, w and the states; outputs w and the states.

// Reads 8n bytes, writes 4n.
struct PlainSgdOp : Floats<2, 1> {
  float scale, eta, decay;
  TESSERA_HOST_DEVICE void operator()(int64_t, int, const Common&, const float* v, float* r) const {
    const float g = scale * v[0] + decay * v[1];
    r[0] = v[1] - eta * g;
  }
};

// Reads 12n bytes, writes 8n; so do the next two.
struct MomentumOp : Floats<3, 2> {
  float scale, eta, mu, decay;
  TESSERA_HOST_DEVICE void operator()(int64_t, int, const Common&, const float* v, float* r) const {
    const float g = scale * v[0] + decay * v[1];
    r[1] = mu * v[2] + g;
    r[0] = v[1] - eta * r[1];
  }
};

struct NesterovOp : Floats<3, 2> {
  float scale, eta, mu, decay;
  TESSERA_HOST_DEVICE void operator()(int64_t, int, const Common&, const float* v, float* r) const {
    const float g = scale * v[0] + decay * v[1];
    r[1] = mu * v[2] + g;
    r[0] = v[1] - eta * (g + mu * r[1]);
  }
};

struct AdagradOp : Floats<3, 2> {
  float scale, eta, epsilon, decay;
  TESSERA_HOST_DEVICE void operator()(int64_t, int, const Common&, const float* v, float* r) const {
    const float g = scale * v[0] + decay * v[1];
    r[1] = v[2] + g * g;
    r[0] = v[1] - eta * (g / (std::sqrt(r[1]) + epsilon));
  }
};

// AdamCoefficients of common/rule/adam.h, whose header nvcc need not see.
// Reads 16n bytes, writes 12n.
struct AdamOp : Floats<4, 3> {
  float scale, coupled_decay, decoupled_decay;
  float beta1, beta1_rest, beta2, beta2_rest;
  float step_size, root_scale, epsilon;
  TESSERA_HOST_DEVICE void operator()(int64_t, int, const Common&, const float* v, float* r) const {
    const float w = v[1];
    const float g = scale * v[0] + coupled_decay * w;
    r[1] = beta1 * v[2] + beta1_rest * g;
    r[2] = beta2 * v[3] + beta2_rest * (g * g);
    const float square = r[2] < 0.0f ? 0.0f : r[2];
    const float root = std::sqrt(square) * root_scale + epsilon;
    r[0] = (w - decoupled_decay * w) - step_size * (r[1] / root);
  }
};

}  // namespace tessera::cuda

#endif  // TESSERA_KERNELS_CUDA_VECTOR_KERNELS_H_
