// What embedding.cc runs. Sums are in the order of the places of the batch, as the CPU's, and have its bits.
#ifndef TESSERA_KERNELS_CUDA_EMBEDDING_KERNELS_H_
#define TESSERA_KERNELS_CUDA_EMBEDDING_KERNELS_H_

#include <cstdint>

#include "kernels/cuda/tiles.h"

namespace tessera::cuda {

// Each warp has a token.
struct EmbedTokens : OnePhase {
  static constexpr int kWarp = 32;
  static constexpr int kTokens = kThreads / kWarp;  // of a block

  int64_t count, places, units;
  const float* tokens;
  const float* weight;
  const float* positions;  // null: none
  float* y;

  int64_t blocks() const { return CeilDiv(count, kTokens); }

  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, OnePhase::Shared&, OnePhase::Own&) const {
    const int64_t i = lane.block * kTokens + lane.thread / kWarp;
    if (i >= count) return;
    const float* const from = weight + int64_t{static_cast<int32_t>(tokens[i])} * units;
    const float* const place = positions == nullptr ? nullptr : positions + i % places * units;
    TESSERA_UNROLL_4 for (int64_t u = lane.thread % kWarp; u < units; u += kWarp) {
      y[i * units + u] = place == nullptr ? from[u] : from[u] + place[u];
    }
  }
};

// The gradient of the weight: a block has an entry of the vocabulary. Its threads first look for the entry, each in a
// segment of the batch of its own, and then each sums its units over the segments that have it. Most entries of a
// large vocabulary are in none.
struct EmbeddingTokenSums {
  static constexpr int kThreads = 256;
  static constexpr int kPhases = 2;
  using Value = int32_t;
  struct Shared {
    Value total;
    int32_t found[kThreads];  // in each segment
  };
  struct Own {
    Value value;
  };
  static constexpr bool Reduces(int phase) { return phase == 0; }
  TESSERA_HOST_DEVICE static Value Combine(const Value& a, const Value& b) { return a + b; }

  int64_t count, vocabulary, units;
  const float* tokens;
  const float* dy;
  bool adds;
  float* dweight;

  int64_t blocks() const { return vocabulary; }

  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, Shared& shared, Own& own) const {
    const auto entry = static_cast<float>(lane.block);
    const int64_t length = CeilDiv(count, kThreads);
    if constexpr (phase == 0) {
      own.value = 0;
      const int64_t begin = lane.thread * length, end = End(begin, length);
      TESSERA_UNROLL_4 for (int64_t i = begin; i < end; ++i) own.value += tokens[i] == entry;
      shared.found[lane.thread] = own.value;
    } else {
      if (shared.total == 0 && adds) return;
      for (int64_t u = lane.thread; u < units; u += kThreads) {
        float* const to = dweight + lane.block * units + u;
        float sum = adds ? *to : 0.0f;
        for (int segment = 0; segment < kThreads && shared.total > 0; ++segment) {
          if (shared.found[segment] == 0) continue;
          const int64_t begin = segment * length, end = End(begin, length);
          for (int64_t i = begin; i < end; ++i) {
            if (tokens[i] == entry) sum += dy[i * units + u];
          }
        }
        *to = sum;
      }
    }
  }

 private:
  TESSERA_HOST_DEVICE int64_t End(int64_t begin, int64_t length) const {
    return begin + length < count ? begin + length : count;
  }
};

// The gradient of the positions: a thread has a unit of a place.
struct EmbeddingPlaceSums : OnePhase {
  int64_t rows, size;  // places by units
  const float* dy;
  bool adds;
  float* dpositions;

  int64_t blocks() const { return CeilDiv(size, kThreads); }

  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, OnePhase::Shared&, OnePhase::Own&) const {
    const int64_t i = lane.block * kThreads + lane.thread;
    if (i >= size) return;
    float sum = adds ? dpositions[i] : 0.0f;
    TESSERA_UNROLL_8 for (int64_t row = 0; row < rows; ++row) sum += dy[row * size + i];
    dpositions[i] = sum;
  }
};

}  // namespace tessera::cuda

#endif  // TESSERA_KERNELS_CUDA_EMBEDDING_KERNELS_H_
