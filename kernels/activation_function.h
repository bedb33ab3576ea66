// Functions of one value, and their slopes, without branches: they vectorise, and give the same bits on every CPU. On a
// GPU FastExp has here and there another last bit.
//
// Values are right to 16 units in the last place; far below 0, where they vanish, to a relative 1e-4, and to an
// absolute 1e-35. Slopes are to 8 units in the last place of 1. Infinities have their limits, and a NaN gives a NaN.
#ifndef TESSERA_KERNELS_ACTIVATION_FUNCTION_H_
#define TESSERA_KERNELS_ACTIVATION_FUNCTION_H_

#include <cmath>

#include "common/base/host_device.h"
#include "kernels/exponential.h"

#define TESSERA_INLINE TESSERA_HOST_DEVICE inline __attribute__((always_inline))

namespace tessera {

// A function y = Value(x) is a type with kSlopeOfY: whether Slope takes y, or else x.

// Values of the logistic function and of 1 - itself, each without cancellation.
struct Logistic {
  float above;  // 1 / (1 + exp(-x))
  float below;  // 1 / (1 + exp(x))
};
TESSERA_INLINE Logistic LogisticOf(float x) {
  const float e = FastExp(-std::fabs(x));
  const float share = 1.0f / (1.0f + e);
  return {x < 0.0f ? e * share : share, x < 0.0f ? share : e * share};
}

// x, or what is nearest to it in [-limit, limit]; a NaN stays one.
TESSERA_INLINE float Bounded(float x, float limit) {
  const float above = x < -limit ? -limit : x;
  return above > limit ? limit : above;
}

struct SigmoidFunction {
  static constexpr bool kSlopeOfY = true;
  TESSERA_INLINE float Value(float x) const { return LogisticOf(x).above; }
  TESSERA_INLINE float Slope(float y) const { return y * (1.0f - y); }
};

struct TanhFunction {
  static constexpr bool kSlopeOfY = true;
  // Near 0 a polynomial, which keeps the sign of the smallest values (Moshier's Cephes, tanhf).
  TESSERA_INLINE float Value(float x) const {
    const float e = FastExp(-2.0f * std::fabs(x));
    const float size = (1.0f - e) / (1.0f + e);
    const float square = x * x;
    float p = -5.70498872745e-3f;
    p = p * square + 2.06390887954e-2f;
    p = p * square - 5.37397155531e-2f;
    p = p * square + 1.33314422036e-1f;
    p = p * square - 3.33332819422e-1f;
    const float near = p * square * x + x;
    const float far = x < 0.0f ? -size : size;
    return std::fabs(x) < 0.625f ? near : far;
  }
  TESSERA_INLINE float Slope(float y) const { return (1.0f - y) * (1.0f + y); }
};

struct LeakyReluFunction {
  static constexpr bool kSlopeOfY = true;
  float slope;  // at least 0, so that y has x's sign
  TESSERA_INLINE float Value(float x) const { return x < 0.0f ? slope * x : x; }
  TESSERA_INLINE float Slope(float y) const { return y <= 0.0f ? slope : 1.0f; }
};

struct SiluFunction {
  static constexpr bool kSlopeOfY = false;
  // Where the logistic function is 0 or 1 the bound changes nothing but infinity times 0.
  static constexpr float kFar = 1e4f;
  TESSERA_INLINE float Value(float x) const {
    return (x < -kFar ? -kFar : x) * LogisticOf(x).above;
  }
  TESSERA_INLINE float Slope(float x) const {
    const Logistic at = LogisticOf(x);
    return at.above + Bounded(x, kFar) * (at.above * at.below);
  }
};

// x Phi(x), where Phi is the normal distribution's. The tail Phi(-|x|) is computed by itself, so that the product is as
// exact far below 0 as elsewhere (Moshier's Cephes, erff and erfcf).
struct GeluFunction {
  static constexpr bool kSlopeOfY = false;
  static constexpr float kFar = 100.0f;

  struct Normal {
    float distribution;  // Phi(x)
    float density;
  };
  TESSERA_INLINE static Normal NormalAt(float x) {
    constexpr float kRootHalf = 0.707106781186547524f;
    constexpr float kRootOfTwoPi = 0.398942280401432678f;  // 1 / sqrt(2 pi)
    const float z = std::fabs(x) * kRootHalf;
    const float e = FastExp(-0.5f * (x * x));
    // erf(z) for z < 1.
    const float square = z * z;
    float p = 7.853861353153693e-5f;
    p = p * square - 8.010193625184903e-4f;
    p = p * square + 5.188327685732524e-3f;
    p = p * square - 2.685381193529856e-2f;
    p = p * square + 1.128358514861418e-1f;
    p = p * square - 3.761262582423300e-1f;
    p = p * square + 1.128379165726710e+0f;
    const float near = 0.5f - 0.5f * (z * p);
    // erfc(z) / exp(-z^2) z for 1 <= z < 2, and for z >= 2.
    const float q = 1.0f / z;
    const float v = q * q;
    float middle = 2.326819970068386e-2f;
    middle = middle * v - 1.387039388740657e-1f;
    middle = middle * v + 3.687424674597105e-1f;
    middle = middle * v - 5.824733027278666e-1f;
    middle = middle * v + 6.210004621745983e-1f;
    middle = middle * v - 4.944515323274145e-1f;
    middle = middle * v + 3.404879937665872e-1f;
    middle = middle * v - 2.741127028184656e-1f;
    middle = middle * v + 5.638259427386472e-1f;
    float outer = -1.047766399936249e+1f;
    outer = outer * v + 1.297719955372516e+1f;
    outer = outer * v - 7.495518717768503e+0f;
    outer = outer * v + 2.921019019210786e+0f;
    outer = outer * v - 1.015265279202700e+0f;
    outer = outer * v + 4.218463358204948e-1f;
    outer = outer * v - 2.820767439740514e-1f;
    outer = outer * v + 5.641895067754075e-1f;
    const float far = 0.5f * e * q * (z < 2.0f ? middle : outer);
    const float tail = z < 1.0f ? near : far;
    return {x < 0.0f ? tail : 1.0f - tail, kRootOfTwoPi * e};
  }
  TESSERA_INLINE float Value(float x) const {
    return (x < -kFar ? -kFar : x) * NormalAt(x).distribution;
  }
  TESSERA_INLINE float Slope(float x) const {
    const Normal at = NormalAt(x);
    return at.distribution + Bounded(x, kFar) * at.density;
  }
};

// 0.5 x (1 + tanh(u)) with u = sqrt(2 / pi) (x + 0.044715 x^3), which is x / (1 + exp(-2 u)).
struct GeluTanhFunction {
  static constexpr bool kSlopeOfY = false;
  static constexpr float kFar = 100.0f;
  static constexpr float kTwiceRoot = 1.59576912160573071f;  // 2 sqrt(2 / pi)
  static constexpr float kCube = 0.044715f;
  TESSERA_INLINE static Logistic At(float bounded) {
    return LogisticOf(kTwiceRoot * (bounded + kCube * (bounded * bounded * bounded)));
  }
  TESSERA_INLINE float Value(float x) const {
    return (x < -kFar ? -kFar : x) * At(Bounded(x, kFar)).above;
  }
  TESSERA_INLINE float Slope(float x) const {
    const float at = Bounded(x, kFar);
    const Logistic share = At(at);
    const float inner = kTwiceRoot * (1.0f + 3.0f * kCube * (at * at));
    return share.above + at * inner * (share.above * share.below);
  }
};

enum class Activation { kGelu, kGeluTanh, kTanh, kSigmoid, kSilu, kLeakyRelu };

// One of these functions, with its number if it has one.
struct ActivationFunction {
  Activation kind = Activation::kTanh;
  float slope = 0;  // of kLeakyRelu
};

// Calls f with the function itself. `F` is no lambda where its body is compiled for several instruction sets.
template <typename F>
inline __attribute__((always_inline)) void WithFunction(const ActivationFunction& function,
                                                        const F& f) {
  switch (function.kind) {
    case Activation::kGelu:
      return f(GeluFunction{});
    case Activation::kGeluTanh:
      return f(GeluTanhFunction{});
    case Activation::kTanh:
      return f(TanhFunction{});
    case Activation::kSigmoid:
      return f(SigmoidFunction{});
    case Activation::kSilu:
      return f(SiluFunction{});
    case Activation::kLeakyRelu:
      return f(LeakyReluFunction{function.slope});
  }
}

}  // namespace tessera

#undef TESSERA_INLINE

#endif  // TESSERA_KERNELS_ACTIVATION_FUNCTION_H_
