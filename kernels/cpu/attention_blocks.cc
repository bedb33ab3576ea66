#include "kernels/cpu/attention_blocks.h"

#include <algorithm>
#include <limits>

#include "common/base/vector_clones.h"
#include "kernels/exponential.h"

#define TESSERA_INLINE inline __attribute__((always_inline))

namespace tessera {
namespace {

constexpr int64_t kLanes = kBlockProductLanes;
constexpr int64_t kStrip = kAttentionStrip;

// The lanes of the rows of a strip. Sums and maxima have so many, whatever the register's width, folded in halves;
// rows are folded side by side, as one alone would wait for each step.
using StripLanes = float[kStrip][kLanes];

TESSERA_INLINE void Fill(float value, StripLanes& lanes) {
  std::fill_n(lanes[0], kStrip * kLanes, value);
}

struct Sum {
  TESSERA_INLINE float operator()(float a, float b) const { return a + b; }
};
struct Larger {
  TESSERA_INLINE float operator()(float a, float b) const { return a > b ? a : b; }
};
template <int64_t kHalf, typename F>
TESSERA_INLINE void Fold(const F& f, StripLanes& lanes) {
  for (int64_t row = 0; row < kStrip; ++row) {
#pragma omp simd
    for (int64_t i = 0; i < kHalf; ++i) lanes[row][i] = f(lanes[row][i], lanes[row][i + kHalf]);
  }
  if constexpr (kHalf > 1) Fold<kHalf / 2>(f, lanes);
}

typedef float FourFloats __attribute__((vector_size(16), aligned(4), may_alias));

// Turns a square of four by four.
TESSERA_INLINE void TurnSquare(const float* from, int64_t step, float* to, int64_t to_step) {
  FourFloats row[4], half[4];
  for (int i = 0; i < 4; ++i) row[i] = *reinterpret_cast<const FourFloats*>(from + i * step);
  half[0] = __builtin_shufflevector(row[0], row[1], 0, 4, 1, 5);
  half[1] = __builtin_shufflevector(row[2], row[3], 0, 4, 1, 5);
  half[2] = __builtin_shufflevector(row[0], row[1], 2, 6, 3, 7);
  half[3] = __builtin_shufflevector(row[2], row[3], 2, 6, 3, 7);
  const auto store = [&](int i, FourFloats values) {
    *reinterpret_cast<FourFloats*>(to + i * to_step) = values;
  };
  store(0, __builtin_shufflevector(half[0], half[1], 0, 1, 4, 5));
  store(1, __builtin_shufflevector(half[0], half[1], 2, 3, 6, 7));
  store(2, __builtin_shufflevector(half[2], half[3], 0, 1, 4, 5));
  store(3, __builtin_shufflevector(half[2], half[3], 2, 3, 6, 7));
}

}  // namespace

TESSERA_VECTOR_CLONES void CopyPlaces(const PlacesShape& shape, const float* from, int64_t step,
                                      float factor, float* to) {
  for (int64_t place = 0; place < shape.count; ++place) {
    const float* const row = from + place * step;
    float* const out = to + place * shape.padded;
#pragma omp simd
    for (int64_t i = 0; i < shape.size; ++i) out[i] = factor * row[i];
    // Products run over whole lanes, to which zeros add nothing.
    for (int64_t i = shape.size; i < shape.padded; ++i) out[i] = 0.0f;
  }
}

void TurnPlaces(const PlacesShape& shape, const float* from, int64_t step, float* to) {
  // Squares of four by four turn in registers; a plain loop would write to another line of the cache each time.
  const int64_t whole = shape.count / 4 * 4, whole_size = shape.size / 4 * 4;
  for (int64_t i = 0; i < whole_size; i += 4) {
    for (int64_t place = 0; place < whole; place += 4) {
      TurnSquare(from + place * step + i, step, to + i * kAttentionBlock + place, kAttentionBlock);
    }
  }
  // The squares leave out the last places and columns. Places up to whole lanes become zeros, as products read them.
  const int64_t padded = PadToLanes(shape.count);
  for (int64_t i = 0; i < shape.size; ++i) {
    float* const row = to + i * kAttentionBlock;
    for (int64_t place = i < whole_size ? whole : 0; place < shape.count; ++place) {
      row[place] = from[place * step + i];
    }
    for (int64_t place = shape.count; place < padded; ++place) row[place] = 0.0f;
  }
}

TESSERA_VECTOR_CLONES void WeighScores(const StripView& strip, int64_t first, float* scores,
                                       SoftmaxStates* states, float* shrinks) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  StripLanes lanes;
  Fill(kNone, lanes);
  for (int64_t row = 0; row < strip.rows; ++row) {
    const float* const own = scores + row * kAttentionBlock;
    const auto seen = static_cast<int32_t>(strip.seen + row * strip.more);
    // What a row may not see counts as minus infinity, so that it is never the largest.
    for (int32_t begin = 0; begin < strip.padded; begin += kLanes) {
#pragma omp simd
      for (int32_t i = 0; i < kLanes; ++i) {
        const float score = begin + i < seen ? own[begin + i] : kNone;
        lanes[row][i] = score > lanes[row][i] ? score : lanes[row][i];
      }
    }
  }
  Fold<kLanes / 2>(Larger(), lanes);
  float largest[kStrip];
  // A larger score shrinks what was summed before by exp(old - new). Where nothing was summed the old one is minus
  // infinity, and the factor 0.
  for (int64_t row = 0; row < strip.rows; ++row) {
    const float before = states->largest[first + row];
    largest[row] = lanes[row][0] > before ? lanes[row][0] : before;
    shrinks[row] = FastExp(before - largest[row]);
    states->largest[first + row] = largest[row];
  }
  Fill(0.0f, lanes);
  for (int64_t row = 0; row < strip.rows; ++row) {
    float* const own = scores + row * kAttentionBlock;
    const auto seen = static_cast<int32_t>(strip.seen + row * strip.more);
    for (int32_t begin = 0; begin < strip.padded; begin += kLanes) {
#pragma omp simd
      for (int32_t i = 0; i < kLanes; ++i) {
        const float weight = FastExp(own[begin + i] - largest[row]);
        // Scores are weighed all the same and dropped after, as a branch would stop the lanes.
        const float kept = begin + i < seen ? weight : 0.0f;
        own[begin + i] = kept;
        lanes[row][i] += kept;
      }
    }
  }
  Fold<kLanes / 2>(Sum(), lanes);
  for (int64_t row = 0; row < strip.rows; ++row) {
    // The older sum refers to the older maximum, and shrinks to the new one.
    float* const sum = &states->sum[first + row];
    *sum = *sum * shrinks[row] + lanes[row][0];
  }
}

TESSERA_VECTOR_CLONES void SlopeOfScores(const StripView& strip, const StripSums& sums,
                                         const float* factors, float* scores, float* slopes,
                                         float* kept) {
  const auto columns = static_cast<int32_t>(strip.padded);
  for (int64_t row = 0; row < strip.rows; ++row) {
    const int64_t at = row * kAttentionBlock;
    const auto seen = static_cast<int32_t>(strip.seen + row * strip.more);
    const float log_sum = sums.log_sums[row], share = sums.shares[row];
    float* const score = scores + at;
    float* const slope = slopes + at;
    float* const weight = kept + at;
    // Rounding may leave the difference a little above 0, where FastExp is still exact.
    if (factors == nullptr) {
#pragma omp simd
      for (int32_t i = 0; i < columns; ++i) {
        const float value = FastExp(score[i] - log_sum);
        const float product = value * (slope[i] - share);
        slope[i] = i < seen ? product : 0.0f;
        weight[i] = i < seen ? value : 0.0f;
      }
    } else {
      const float* const factor = factors + at;
#pragma omp simd
      for (int32_t i = 0; i < columns; ++i) {
        const float value = FastExp(score[i] - log_sum);
        const float product = value * (factor[i] * slope[i] - share);
        const float left = value * factor[i];
        slope[i] = i < seen ? product : 0.0f;
        weight[i] = i < seen ? left : 0.0f;
      }
    }
  }
}

TESSERA_VECTOR_CLONES void ScaleRows(int64_t rows, int64_t padded, const float* factors, float* x) {
  for (int64_t row = 0; row < rows; ++row) {
    float* const own = x + row * padded;
    const float factor = factors[row];
#pragma omp simd
    for (int64_t i = 0; i < padded; ++i) own[i] *= factor;
  }
}

TESSERA_VECTOR_CLONES void StorePlaces(const PlacesShape& shape, const float* from,
                                       const float* factors, float* to, int64_t step) {
  for (int64_t place = 0; place < shape.count; ++place) {
    const float* const row = from + place * shape.padded;
    float* const out = to + place * step;
    const float factor = factors[place];
#pragma omp simd
    for (int64_t i = 0; i < shape.size; ++i) out[i] = factor * row[i];
  }
}

TESSERA_VECTOR_CLONES void DotPlaces(const PlacesShape& shape, const float* x, const float* y,
                                     int64_t step, float* sums) {
  for (int64_t place = 0; place < shape.count; place += kStrip) {
    const int64_t rows = std::min(kStrip, shape.count - place);
    StripLanes lanes;
    Fill(0.0f, lanes);
    for (int64_t row = 0; row < rows; ++row) {
      const float* const a = x + (place + row) * step;
      const float* const b = y + (place + row) * step;
      int64_t begin = 0;
      for (; begin + kLanes <= shape.size; begin += kLanes) {
#pragma omp simd
        for (int64_t i = 0; i < kLanes; ++i) lanes[row][i] += a[begin + i] * b[begin + i];
      }
      // Columns after the last whole lanes go to the first lanes, as everywhere.
      for (int64_t i = 0; begin + i < shape.size; ++i) lanes[row][i] += a[begin + i] * b[begin + i];
    }
    Fold<kLanes / 2>(Sum(), lanes);
    for (int64_t row = 0; row < rows; ++row) sums[place + row] = lanes[row][0];
  }
}

}  // namespace tessera

#undef TESSERA_INLINE
