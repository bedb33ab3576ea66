#include "kernels/cpu/dropout.h"

#include <algorithm>
#include <cmath>

#include "common/base/check.h"
#include "common/base/philox_blocks.h"
#include "common/base/vector_clones.h"

#define TESSERA_INLINE inline __attribute__((always_inline))

namespace tessera {
namespace {

// Philox blocks computed side by side.
constexpr uint64_t kLanes = 16;
constexpr int64_t kTile = 4 * kLanes;
constexpr uint64_t kBlocks = uint64_t{1} << 40;  // of a layer

// Draws the numbers of kLanes blocks in order of element.
TESSERA_INLINE void DrawTile(const CpuDropout& of, uint64_t block, uint32_t* numbers) {
  // A layer's numbers repeat after kBlocks blocks. Only a tile across that end is drawn block by block.
  if (block + kLanes > kBlocks) {
    for (uint64_t i = 0; i < kLanes; ++i) {
      const PhiloxBlock one = Philox(of.seed, Stream::kDropout, of.a, of.b + (block + i) % kBlocks);
      std::copy(one.begin(), one.end(), numbers + 4 * i);
    }
    return;
  }
  PhiloxBlocks<kLanes> blocks;
  FillPhiloxBlocks(of.seed, Stream::kDropout, of.a, of.b + block, &blocks);
  for (uint64_t i = 0; i < kLanes; ++i) {
    numbers[4 * i] = blocks.word[0][i];
    numbers[4 * i + 1] = blocks.word[1][i];
    numbers[4 * i + 2] = blocks.word[2][i];
    numbers[4 * i + 3] = blocks.word[3][i];
  }
}

// Calls f(begin, count, their numbers) for parts of n elements in their order.
template <typename F>
TESSERA_INLINE void ForTiles(const CpuDropout& of, uint64_t element, int64_t n, const F& f) {
  uint32_t numbers[kTile];
  // Each block has the numbers of four elements, and the first element may lie in its middle.
  uint64_t block = element / 4 % kBlocks;
  auto first = static_cast<int64_t>(element % 4);
  for (int64_t begin = 0; begin < n;) {
    DrawTile(of, block, numbers);
    const int64_t count = std::min(kTile - first, n - begin);
    f(begin, count, numbers + first);
    begin += count;
    first = 0;
    block = (block + kLanes) % kBlocks;
  }
}

// As lambdas are not compiled for the function's instruction set.
struct ApplyTile {
  uint32_t drop;
  float scale;
  const float* x;
  float* y;
  TESSERA_INLINE void operator()(int64_t begin, int64_t count, const uint32_t* numbers) const {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
      const float kept = x[begin + i] * scale;
      y[begin + i] = numbers[i] >> 8 < drop ? 0.0f : kept;
    }
  }
};
struct FactorsTile {
  uint32_t drop;
  float scale;
  float* factors;
  TESSERA_INLINE void operator()(int64_t begin, int64_t count, const uint32_t* numbers) const {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) factors[begin + i] = numbers[i] >> 8 < drop ? 0.0f : scale;
  }
};

TESSERA_VECTOR_CLONES void ApplyLoop(const CpuDropout& of, uint64_t element, int64_t n,
                                     const ApplyTile& tile) {
  ForTiles(of, element, n, tile);
}
TESSERA_VECTOR_CLONES void FactorsLoop(const CpuDropout& of, uint64_t element, int64_t n,
                                       const FactorsTile& tile) {
  ForTiles(of, element, n, tile);
}

}  // namespace

CpuDropout CpuDropout::Of(const DropoutKey& key, uint64_t layer, double probability) {
  TESSERA_CHECK(probability >= 0 && probability < 1);
  TESSERA_CHECK(key.rank < uint64_t{1} << 16 && layer < 1u << 16);
  CpuDropout dropout;
  dropout.seed = key.seed;
  dropout.a = key.A(layer);
  dropout.b = key.B(layer, 0);
  // k / 2^24 < probability for just the integers k below this.
  dropout.drop = static_cast<uint32_t>(std::ceil(probability * 0x1p24));
  dropout.scale = static_cast<float>(1.0 / (1.0 - probability));
  return dropout;
}

void CpuDropout::Apply(uint64_t element, int64_t n, const float* x, float* y) const {
  ApplyLoop(*this, element, n, {drop, scale, x, y});
}

void CpuDropout::Factors(uint64_t element, int64_t n, float* factors) const {
  FactorsLoop(*this, element, n, {drop, scale, factors});
}

}  // namespace tessera

#undef TESSERA_INLINE
