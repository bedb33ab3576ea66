#include "kernels/cpu/activation.h"

#include "common/base/check.h"
#include "common/base/vector_clones.h"
#include "kernels/cpu/dropout.h"

namespace tessera {
namespace {

// A comparison and not a maximum, which may turn a NaN into 0 and hide that training diverged.
TESSERA_VECTOR_CLONES void ReluLoop(int64_t n, const float* x, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] < 0.0f ? 0.0f : x[i];
}

// The slope follows from the result: it is 0 wherever the input was not positive.
TESSERA_VECTOR_CLONES void ReluBackwardLoop(int64_t n, const float* y, const float* dy, float* dx) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) dx[i] = y[i] <= 0.0f ? 0.0f : dy[i];
}

// Loops over a function, for WithFunction, which compiles each function into them: a call per entry would stop the
// lanes.
struct ApplyLoop {
  int64_t n;
  const float* x;
  float* y;
  template <typename F>
  inline __attribute__((always_inline)) void operator()(const F& f) const {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] = f.Value(x[i]);
  }
};
struct ApplyBackwardLoop {
  int64_t n;
  const float* of;
  const float* dy;
  float* dx;
  template <typename F>
  inline __attribute__((always_inline)) void operator()(const F& f) const {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) dx[i] = dy[i] * f.Slope(of[i]);
  }
};
TESSERA_VECTOR_CLONES void RunApply(const ActivationFunction& function, const ApplyLoop& loop) {
  WithFunction(function, loop);
}
TESSERA_VECTOR_CLONES void RunApplyBackward(const ActivationFunction& function,
                                            const ApplyBackwardLoop& loop) {
  WithFunction(function, loop);
}
// What a value costs, in values read or written.
constexpr int64_t kFunctionCost = 16;

}  // namespace

void CpuActivation::Relu(int64_t n, const float* x, float* y) {
  threads_.Split(n, 2,
                 [&](int64_t begin, int64_t end) { ReluLoop(end - begin, x + begin, y + begin); });
}

void CpuActivation::ReluBackward(int64_t n, const float* y, const float* dy, float* dx) {
  threads_.Split(n, 3, [&](int64_t begin, int64_t end) {
    ReluBackwardLoop(end - begin, y + begin, dy + begin, dx + begin);
  });
}

void CpuActivation::Apply(const ActivationFunction& function, int64_t n, const float* x, float* y) {
  threads_.Split(n, kFunctionCost, [&](int64_t begin, int64_t end) {
    RunApply(function, {end - begin, x + begin, y + begin});
  });
}

void CpuActivation::ApplyBackward(const ActivationFunction& function, int64_t n, const float* of,
                                  const float* dy, float* dx) {
  threads_.Split(n, kFunctionCost, [&](int64_t begin, int64_t end) {
    RunApplyBackward(function, {end - begin, of + begin, dy + begin, dx + begin});
  });
}

void CpuActivation::Dropout(const MatrixShape& shape, const DropoutKey* key, uint64_t layer,
                            double probability, const float* x, float* y) {
  // A minibatch may be computed in parts, and each part counts its rows from the first of the whole.
  const int64_t before = static_cast<int64_t>(key->first_row) * shape.columns;
  // Four entries share a block of random numbers, and the number of a block has 40 bits in the counter.
  TESSERA_CHECK((before + shape.size()) / 4 < int64_t{1} << 40);
  const CpuDropout dropout = CpuDropout::Of(*key, layer, probability);
  threads_.Split(shape.size(), 8, [&](int64_t begin, int64_t end) {
    dropout.Apply(static_cast<uint64_t>(before + begin), end - begin, x + begin, y + begin);
  });
}

}  // namespace tessera
