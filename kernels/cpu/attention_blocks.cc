#include "kernels/cpu/attention_blocks.h"

#include <algorithm>

#include "common/base/vector_clones.h"
#include "kernels/exponential.h"

#define TESSERA_INLINE inline __attribute__((always_inline))

namespace tessera {
namespace {

constexpr int64_t kLanes = kBlockProductLanes;

// Sums and maxima have this many lanes, whatever the register's width, folded in halves.
template <typename F>
TESSERA_INLINE float Fold(float* lanes, const F& f) {
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) lanes[i] = f(lanes[i], lanes[i + half]);
  }
  return lanes[0];
}
struct Sum {
  TESSERA_INLINE float operator()(float a, float b) const { return a + b; }
};
struct Larger {
  TESSERA_INLINE float operator()(float a, float b) const { return a > b ? a : b; }
};

typedef float FourFloats __attribute__((vector_size(16), aligned(4)));

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
    for (int64_t i = shape.size; i < shape.padded; ++i) out[i] = 0.0f;
  }
}

void TurnPlaces(const PlacesShape& shape, const float* from, int64_t step, float* to) {
  const int64_t whole = shape.count / 4 * 4, whole_size = shape.size / 4 * 4;
  for (int64_t i = 0; i < whole_size; i += 4) {
    for (int64_t place = 0; place < whole; place += 4) {
      TurnSquare(from + place * step + i, step, to + i * kAttentionBlock + place, kAttentionBlock);
    }
  }
  const int64_t padded = PadToLanes(shape.count);
  for (int64_t i = 0; i < shape.size; ++i) {
    float* const row = to + i * kAttentionBlock;
    for (int64_t place = i < whole_size ? whole : 0; place < shape.count; ++place) {
      row[place] = from[place * step + i];
    }
    for (int64_t place = shape.count; place < padded; ++place) row[place] = 0.0f;
  }
}

TESSERA_VECTOR_CLONES float WeighScores(int64_t seen, int64_t padded, float* scores,
                                        SoftmaxState* state) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  float lanes[kLanes];
  std::fill_n(lanes, kLanes, kNone);
  const auto end = static_cast<int32_t>(seen);
  for (int32_t begin = 0; begin < padded; begin += kLanes) {
#pragma omp simd
    for (int32_t i = 0; i < kLanes; ++i) {
      const float score = begin + i < end ? scores[begin + i] : kNone;
      lanes[i] = score > lanes[i] ? score : lanes[i];
    }
  }
  const float before = state->largest, found = Fold(lanes, Larger());
  const float largest = found > before ? found : before;
  std::fill_n(lanes, kLanes, 0.0f);
  for (int32_t begin = 0; begin < padded; begin += kLanes) {
#pragma omp simd
    for (int32_t i = 0; i < kLanes; ++i) {
      const float weight = FastExp(scores[begin + i] - largest);
      const float kept = begin + i < end ? weight : 0.0f;
      scores[begin + i] = kept;
      lanes[i] += kept;
    }
  }
  const float shrinks = FastExp(before - largest);
  state->largest = largest;
  state->sum = state->sum * shrinks + Fold(lanes, Sum());
  return shrinks;
}

TESSERA_VECTOR_CLONES void SlopeOfScores(int64_t seen, int64_t padded, const QuerySums& query,
                                         const float* factors, float* scores, float* slopes,
                                         float* kept) {
  const auto end = static_cast<int32_t>(seen), columns = static_cast<int32_t>(padded);
  const float log_sum = query.log_sum, share = query.share;
#pragma omp simd
  for (int32_t i = 0; i < columns; ++i) {
    // Rounding may leave it a little above 0, where FastExp is still exact.
    const float weight = FastExp(scores[i] - log_sum);
    scores[i] = i < end ? weight : 0.0f;
  }
  if (factors == nullptr) {
#pragma omp simd
    for (int32_t i = 0; i < columns; ++i) {
      const float slope = scores[i] * (slopes[i] - share);
      slopes[i] = i < end ? slope : 0.0f;
      kept[i] = scores[i];
    }
    return;
  }
#pragma omp simd
  for (int32_t i = 0; i < columns; ++i) {
    const float slope = scores[i] * (factors[i] * slopes[i] - share);
    const float weight = scores[i] * factors[i];
    slopes[i] = i < end ? slope : 0.0f;
    kept[i] = i < end ? weight : 0.0f;
  }
}

TESSERA_VECTOR_CLONES void ScaleRow(int64_t n, float factor, float* x) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

TESSERA_VECTOR_CLONES void StoreRow(int64_t n, float factor, const float* x, bool adds, float* to) {
  if (adds) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) to[i] += factor * x[i];
  } else {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) to[i] = factor * x[i];
  }
}

TESSERA_VECTOR_CLONES float Dot(int64_t n, const float* x, const float* y) {
  float lanes[kLanes] = {};
  int64_t begin = 0;
  for (; begin + kLanes <= n; begin += kLanes) {
#pragma omp simd
    for (int64_t i = 0; i < kLanes; ++i) lanes[i] += x[begin + i] * y[begin + i];
  }
  for (int64_t i = 0; begin + i < n; ++i) lanes[i] += x[begin + i] * y[begin + i];
  return Fold(lanes, Sum());
}

}  // namespace tessera

#undef TESSERA_INLINE
