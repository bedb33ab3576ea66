// The steps of a block of attention besides its products: places laid out for products, and scores become weights.
#ifndef TESSERA_KERNELS_CPU_ATTENTION_BLOCKS_H_
#define TESSERA_KERNELS_CPU_ATTENTION_BLOCKS_H_

#include <cstdint>
#include <limits>

#include "kernels/cpu/block_product.h"

namespace tessera {

// Places of a block, and the length of its rows of scores.
constexpr int64_t kAttentionBlock = 64;

// The next multiple of kBlockProductLanes.
inline int64_t PadToLanes(int64_t n) {
  return (n + kBlockProductLanes - 1) / kBlockProductLanes * kBlockProductLanes;
}

// Places of a head: `count` of them, kAttentionBlock at most, with `size` values each.
struct PlacesShape {
  int64_t count;
  int64_t size;
  int64_t padded;  // PadToLanes(size)
};

// to[place padded + i] = factor from[place step + i], and 0 for i from size to padded.
void CopyPlaces(const PlacesShape& shape, const float* from, int64_t step, float factor, float* to);

// to[i kAttentionBlock + place] = from[place step + i], and 0 for places from count to PadToLanes(count).
void TurnPlaces(const PlacesShape& shape, const float* from, int64_t step, float* to);

// What a query's weights so far are relative to: a weight is exp(score - largest) / sum.
struct SoftmaxState {
  float largest = -std::numeric_limits<float>::infinity();
  float sum = 0;
};

// Turns the first `seen` scores of a query into exp(score - largest) and those from there to `padded` into 0, brings
// the state up to date, and returns by what the sums of earlier weights shrink.
float WeighScores(int64_t seen, int64_t padded, float* scores, SoftmaxState* state);

// What a query's backward pass knows of its forward pass.
struct QuerySums {
  float log_sum;
  float share;  // dy . y
};

// Turns scores into weights behind the dropout, `kept`, and the slopes of weights behind the dropout into those of
// scores. Both are 0 from `seen` to `padded`. `factors` are the dropout's, or null. `scores` become undefined.
void SlopeOfScores(int64_t seen, int64_t padded, const QuerySums& query, const float* factors,
                   float* scores, float* slopes, float* kept);

// x *= factor. n is a multiple of kBlockProductLanes.
void ScaleRow(int64_t n, float factor, float* x);

// to = factor x, on top of what is there where `adds`.
void StoreRow(int64_t n, float factor, const float* x, bool adds, float* to);

// The sum of x y.
float Dot(int64_t n, const float* x, const float* y);

}  // namespace tessera

#endif  // TESSERA_KERNELS_CPU_ATTENTION_BLOCKS_H_
