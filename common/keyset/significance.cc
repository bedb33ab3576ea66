#include "common/keyset/significance.h"

#include <algorithm>
#include <cmath>

#include "common/base/vector_clones.h"

#if defined(__GNUC__) && defined(__x86_64__)
#include <immintrin.h>
#define TESSERA_SIGNIFICANCE_X86 1
#endif

namespace tessera {
namespace {

// Runs that stay in the first-level cache.
constexpr int64_t kTile = 4096;

TESSERA_VECTOR_CLONES
void WeightsAlone(const float* w, int64_t count, uint32_t* out) {
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits;
    __builtin_memcpy(&bits, w + i, 4);
    bits &= 0x7fffffffu;
    out[i] = bits < kSignificanceMax ? bits : kSignificanceMax;
  }
}

TESSERA_VECTOR_CLONES
void WeightsAndGradients(const float* w, const float* g, float c, int64_t count, uint32_t* out) {
  for (int64_t i = 0; i < count; ++i) {
    const float s = __builtin_fabsf(w[i]) + c * __builtin_fabsf(g[i]);
    uint32_t bits;
    __builtin_memcpy(&bits, &s, 4);
    bits &= 0x7fffffffu;
    out[i] = bits < kSignificanceMax ? bits : kSignificanceMax;
  }
}

TESSERA_VECTOR_CLONES
double SumOfMagnitudes(const float* x, int64_t count) {
  constexpr int kSums = 16;
  double sums[kSums] = {};
  int64_t i = 0;
  for (; i + kSums <= count; i += kSums) {
    for (int k = 0; k < kSums; ++k) sums[k] += __builtin_fabsf(x[i + k]);
  }
  for (int k = 0; i < count; ++i, ++k) sums[k] += __builtin_fabsf(x[i]);
  double sum = 0;
  for (const double s : sums) sum += s;
  return sum;
}

// Runs over tiles: visit(bits of S, first entry, entries).
template <typename Visit>
void ForTiles(const SignificanceRun& run, float c, Visit visit) {
  uint32_t bits[kTile];
  for (int64_t at = 0; at < run.size; at += kTile) {
    const int64_t count = std::min(kTile, run.size - at);
    Significances({run.w + at, run.g == nullptr ? nullptr : run.g + at, count}, c, bits);
    visit(bits, at, count);
  }
}

void Or(uint64_t bits, int64_t at, uint64_t* words) {
  if (bits == 0) return;
  words[at / 64] |= bits << at % 64;
  if (at % 64 != 0 && bits >> (64 - at % 64) != 0) words[at / 64 + 1] |= bits >> (64 - at % 64);
}

// Of up to 64 entries: which are above the bucket, and which in it.
struct Sides {
  uint64_t above = 0;
  uint64_t within = 0;
};

Sides SidesScalar(const uint32_t* bits, int64_t count, uint32_t low, uint32_t high) {
  Sides sides;
  for (int64_t i = 0; i < count; ++i) {
    sides.above |= static_cast<uint64_t>(bits[i] > high) << i;
    sides.within |= static_cast<uint64_t>(bits[i] >= low && bits[i] <= high) << i;
  }
  return sides;
}

#ifdef TESSERA_SIGNIFICANCE_X86
// All values are below 2^31, so that signed comparisons do.
__attribute__((target("avx2"))) Sides SidesAvx2(const uint32_t* bits, uint32_t low, uint32_t high) {
  const __m256i below = _mm256_set1_epi32(static_cast<int>(low) - 1);
  const __m256i top = _mm256_set1_epi32(static_cast<int>(high));
  Sides sides;
  for (int k = 0; k < 8; ++k) {
    const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bits + 8 * k));
    const uint64_t above = static_cast<uint32_t>(
        _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(x, top))));
    const uint64_t reached = static_cast<uint32_t>(
        _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(x, below))));
    sides.above |= above << 8 * k;
    sides.within |= (reached & ~above) << 8 * k;
  }
  return sides;
}

__attribute__((target("avx512f"))) Sides SidesAvx512(const uint32_t* bits, uint32_t low,
                                                     uint32_t high) {
  const __m512i bottom = _mm512_set1_epi32(static_cast<int>(low));
  const __m512i top = _mm512_set1_epi32(static_cast<int>(high));
  Sides sides;
  for (int k = 0; k < 4; ++k) {
    const __m512i x = _mm512_loadu_si512(bits + 16 * k);
    const uint64_t above = _mm512_cmpgt_epi32_mask(x, top);
    const uint64_t reached = _mm512_cmpge_epi32_mask(x, bottom);
    sides.above |= above << 16 * k;
    sides.within |= (reached & ~above) << 16 * k;
  }
  return sides;
}
#endif

Sides SidesOf(const uint32_t* bits, int64_t count, uint32_t low, uint32_t high, GatherPath path) {
#ifdef TESSERA_SIGNIFICANCE_X86
  if (count == 64 && path == GatherPath::kAvx512) return SidesAvx512(bits, low, high);
  if (count == 64 && path == GatherPath::kAvx2) return SidesAvx2(bits, low, high);
#endif
  return SidesScalar(bits, count, low, high);
}

}  // namespace

void Significances(const SignificanceRun& run, float c, uint32_t* out) {
  if (run.g == nullptr || c == 0) return WeightsAlone(run.w, run.size, out);
  WeightsAndGradients(run.w, run.g, c, run.size, out);
}

void AddMagnitudes(const SignificanceRun& run, MagnitudeSums* sums) {
  for (int64_t at = 0; at < run.size; at += kTile) {
    const int64_t count = std::min(kTile, run.size - at);
    sums->w += SumOfMagnitudes(run.w + at, count);
    if (run.g != nullptr) sums->g += SumOfMagnitudes(run.g + at, count);
  }
}

uint64_t SplitAt(const BucketRange& range, const SignificanceRun& run, float c, int64_t first,
                 uint64_t* above, uint64_t* within, std::vector<uint64_t>* counts,
                 GatherPath path) {
  const uint32_t low = range.first << 16;
  const uint32_t high = range.last << 16 | 0xffff;
  uint64_t above_count = 0;
  ForTiles(run, c, [&](const uint32_t* bits, int64_t at, int64_t count) {
    for (int64_t i = 0; i < count; i += 64) {
      const Sides sides = SidesOf(bits + i, std::min<int64_t>(64, count - i), low, high, path);
      above_count += static_cast<uint64_t>(__builtin_popcountll(sides.above));
      Or(sides.above, first + at + i, above);
      Or(sides.within, first + at + i, within);
      for (uint64_t word = sides.within; word != 0; word &= word - 1) {
        ++(*counts)[bits[i + __builtin_ctzll(word)] >> 16];
      }
    }
  });
  return above_count;
}

BucketRange RangeOf(const std::vector<uint64_t>& sample_counts, uint64_t wanted, uint64_t entries) {
  double samples = 0;
  for (const uint64_t count : sample_counts) samples += static_cast<double>(count);
  const double share =
      entries == 0 ? 0 : static_cast<double>(wanted) / static_cast<double>(entries);
  const double place = share * samples;
  const double margin = 6 * std::sqrt(samples * share * (1 - share)) + 6;
  BucketRange range;
  double above = 0;
  bool has_last = false;
  for (size_t i = sample_counts.size(); i-- > 0;) {
    above += static_cast<double>(sample_counts[i]);
    if (!has_last && above >= place - margin && place > margin) {
      range.last = static_cast<uint32_t>(i);
      has_last = true;
    }
    if (above < place + margin) continue;
    range.first = static_cast<uint32_t>(i);
    break;
  }
  return range;
}

Threshold FindThreshold(const std::vector<uint64_t>& counts, uint64_t wanted) {
  Threshold threshold;
  for (size_t i = counts.size(); i-- > 0;) {
    threshold.bucket = static_cast<uint32_t>(i);
    if (i == 0 || threshold.above + counts[i] >= wanted) break;
    threshold.above += counts[i];
  }
  return threshold;
}

}  // namespace tessera
