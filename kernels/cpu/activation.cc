#include "kernels/cpu/activation.h"

#include <algorithm>
#include <cmath>

#include "common/base/check.h"
#include "common/base/philox_blocks.h"
#include "common/base/vector_clones.h"

namespace tessera {
namespace {

TESSERA_VECTOR_CLONES void ReluLoop(int64_t n, const float* x, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] < 0.0f ? 0.0f : x[i];
}

TESSERA_VECTOR_CLONES void ReluBackwardLoop(int64_t n, const float* y, const float* dy, float* dx) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) dx[i] = y[i] <= 0.0f ? 0.0f : dy[i];
}

// Loops over a function, for WithFunction.
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

// Philox blocks computed side by side.
constexpr int64_t kLanes = 16;
constexpr int64_t kTile = 4 * kLanes;

struct PhiloxCounter {
  uint64_t seed;
  uint64_t a;
  uint64_t b;
};

// Draws the numbers of blocks b to b + kLanes - 1 in order of element.
inline __attribute__((always_inline)) void PhiloxTile(const PhiloxCounter& counter,
                                                      uint32_t* numbers) {
  PhiloxBlocks<kLanes> blocks;
  FillPhiloxBlocks(counter.seed, Stream::kDropout, counter.a, counter.b, &blocks);
  for (int64_t i = 0; i < kLanes; ++i) {
    numbers[4 * i] = blocks.word[0][i];
    numbers[4 * i + 1] = blocks.word[1][i];
    numbers[4 * i + 2] = blocks.word[2][i];
    numbers[4 * i + 3] = blocks.word[3][i];
  }
}

// Drops elements [0, n) of an array whose first one has number `first` of block counter.b. A number below `drop`
// of its 24 upper bits drops its element.
TESSERA_VECTOR_CLONES void DropoutLoop(int64_t n, PhiloxCounter counter, int64_t first,
                                       uint32_t drop, float scale, const float* x, float* y) {
  uint32_t numbers[kTile];
  int64_t begin = 0;
  while (begin < n) {
    PhiloxTile(counter, numbers);
    const int64_t count = std::min(kTile - first, n - begin);
    const uint32_t* const number = numbers + first;
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
      const float kept = x[begin + i] * scale;
      y[begin + i] = number[i] >> 8 < drop ? 0.0f : kept;
    }
    begin += count;
    first = 0;
    counter.b += kLanes;
  }
}

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
  const int64_t before = static_cast<int64_t>(key->first_row) * shape.columns;
  TESSERA_CHECK(probability >= 0 && probability < 1);
  TESSERA_CHECK(key->rank < uint64_t{1} << 16 && layer < 1u << 16 &&
                (before + shape.size()) / 4 < int64_t{1} << 40);
  // k / 2^24 < probability for just the integers k below this.
  const uint32_t drop = static_cast<uint32_t>(std::ceil(probability * 0x1p24));
  const float scale = static_cast<float>(1.0 / (1.0 - probability));
  threads_.Split(shape.size(), 8, [&](int64_t begin, int64_t end) {
    const int64_t element = before + begin;
    const uint64_t block = static_cast<uint64_t>(element) / 4;
    const PhiloxCounter counter{key->seed, key->A(layer), key->B(layer, block)};
    DropoutLoop(end - begin, counter, element % 4, drop, scale, x + begin, y + begin);
  });
}

}  // namespace tessera
