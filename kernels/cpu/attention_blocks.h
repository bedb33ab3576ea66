// The steps of a block of attention besides its products: places laid out for products, and scores become weights.
#ifndef TESSERA_KERNELS_CPU_ATTENTION_BLOCKS_H_
#define TESSERA_KERNELS_CPU_ATTENTION_BLOCKS_H_

#include <cstdint>

#include "kernels/cpu/block_product.h"

namespace tessera {

// Places of a block, and the length of its rows of scores.
constexpr int64_t kAttentionBlock = 64;

// The next multiple of kBlockProductLanes.
inline int64_t PadToLanes(int64_t n) {
  return (n + kBlockProductLanes - 1) / kBlockProductLanes * kBlockProductLanes;
}

// Places of a head with `size` values each.
struct PlacesShape {
  int64_t count;
  int64_t size;
  int64_t padded;  // PadToLanes(size)
};

// to[place padded + i] = factor from[place step + i], and 0 for i from size to padded.
void CopyPlaces(const PlacesShape& shape, const float* from, int64_t step, float factor, float* to);

// to[place step + i] = factors[place] from[place padded + i].
void StorePlaces(const PlacesShape& shape, const float* from, const float* factors, float* to,
                 int64_t step);

// to[i kAttentionBlock + place] = from[place step + i], and 0 for places from count to PadToLanes(count). There are
// kAttentionBlock places at most.
void TurnPlaces(const PlacesShape& shape, const float* from, int64_t step, float* to);

// sums[place] = the sum of x y over its values.
void DotPlaces(const PlacesShape& shape, const float* x, const float* y, int64_t step, float* sums);

// Queries whose scores are worked on together.
constexpr int64_t kAttentionStrip = 8;

// What they see of a block of keys. Their scores are rows of kAttentionBlock, of which they compute `padded`.
struct StripView {
  int64_t rows;    // kAttentionStrip at most
  int64_t padded;  // PadToLanes of what the last one sees
  int64_t seen;    // keys that the first one sees
  int64_t more;    // and each next one: 1 where the mask cuts the block, otherwise 0

  int64_t Seen(int64_t row) const { return seen + row * more; }
};

// What queries' weights so far are relative to: a weight is exp(score - largest) / sum. Begins with minus infinity and
// 0.
struct SoftmaxStates {
  float largest[kAttentionBlock];
  float sum[kAttentionBlock];
};

// Turns scores that queries see into exp(score - largest) and the others into 0, and brings the states up to date,
// those from `first` on. shrinks[row] is by what the sums of a query's earlier weights shrink.
void WeighScores(const StripView& strip, int64_t first, float* scores, SoftmaxStates* states,
                 float* shrinks);

// What the backward pass of a strip of queries knows of its forward pass.
struct StripSums {
  const float* log_sums;
  const float* shares;  // dy . y
};

// Turns scores into weights behind the dropout, `kept`, and the slopes of weights behind the dropout into those of
// scores. Both are 0 where queries do not see. `factors` are the dropout's, or null. All are rows of kAttentionBlock;
// `scores` become undefined.
void SlopeOfScores(const StripView& strip, const StripSums& sums, const float* factors,
                   float* scores, float* slopes, float* kept);

// Each row of x, `padded` values, by its factor. `padded` is a multiple of kBlockProductLanes.
void ScaleRows(int64_t rows, int64_t padded, const float* factors, float* x);

}  // namespace tessera

#endif  // TESSERA_KERNELS_CPU_ATTENTION_BLOCKS_H_
