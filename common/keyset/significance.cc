#include "common/keyset/significance.h"

#include <algorithm>
#include <cmath>

#include "common/base/vector_clones.h"
#include "common/keyset/word_bits.h"

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
  // Sixteen sums, added up in their order: the result has the same bits for any register's width.
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

// A tile by bucket: which entries are above the range, and which in it.
struct Sides {
  uint64_t above[kTile / 64];
  uint64_t within[kTile / 64];
  uint32_t values[kTile + 16];  // S of the latter, and room to store a register
  int64_t value_count = 0;
  int64_t above_count = 0;
};

// The words [word, ..) of a tile of `count` entries.
void SortScalar(const uint32_t* bits, int64_t word, int64_t count, uint32_t low, uint32_t high,
                Sides* sides) {
  for (int64_t i = 64 * word; i < count; i += 64) {
    uint64_t above = 0;
    uint64_t within = 0;
    const int64_t end = std::min<int64_t>(64, count - i);
    for (int64_t k = 0; k < end; ++k) {
      const uint32_t s = bits[i + k];
      above |= static_cast<uint64_t>(s > high) << k;
      const bool is_within = s >= low && s <= high;
      // Stored always and counted only where it is within: a branch would be taken at random.
      within |= static_cast<uint64_t>(is_within) << k;
      sides->values[sides->value_count] = s;
      sides->value_count += is_within;
    }
    sides->above[i / 64] = above;
    sides->within[i / 64] = within;
    sides->above_count += CountBits(above);
  }
}

#ifdef TESSERA_SIGNIFICANCE_X86
// All values are below 2^31, so that signed comparisons do. The words that are full; returns how many.
__attribute__((target("avx2,popcnt"))) int64_t SortAvx2(const uint32_t* bits, int64_t count,
                                                        uint32_t low, uint32_t high, Sides* sides) {
  // AVX2 compares signed integers for greater only: x >= low is x > low - 1.
  const __m256i below = _mm256_set1_epi32(static_cast<int>(low) - 1);
  const __m256i top = _mm256_set1_epi32(static_cast<int>(high));
  uint32_t* out = sides->values;
  for (int64_t w = 0; w < count / 64; ++w) {
    const uint32_t* const in = bits + 64 * w;
    uint64_t above = 0;
    uint64_t reached = 0;
    for (int k = 0; k < 8; ++k) {
      const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + 8 * k));
      const int over = _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(x, top)));
      const int at_least = _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(x, below)));
      above |= static_cast<uint64_t>(over) << 8 * k;
      reached |= static_cast<uint64_t>(at_least) << 8 * k;
    }
    sides->above[w] = above;
    sides->within[w] = reached & ~above;
    sides->above_count += __builtin_popcountll(above);
    for (uint64_t word = reached & ~above; word != 0; word &= word - 1) {
      *out++ = in[__builtin_ctzll(word)];
    }
  }
  sides->value_count = out - sides->values;
  return count / 64;
}

// From the arrays themselves: S is never stored. Without a branch: what is stored too much of the values is
// overwritten next.
template <bool with_gradient>
__attribute__((target("avx512f,popcnt"))) int64_t SortAvx512(const SignificanceRun& run, float c,
                                                             uint32_t low, uint32_t high,
                                                             Sides* sides) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  const __m512i most = _mm512_set1_epi32(static_cast<int>(kSignificanceMax));
  const __m512i bottom = _mm512_set1_epi32(static_cast<int>(low));
  const __m512i top = _mm512_set1_epi32(static_cast<int>(high));
  const __m512 weight = _mm512_set1_ps(c);
  uint32_t* out = sides->values;
  for (int64_t w = 0; w < run.size / 64; ++w) {
    uint64_t above = 0;
    uint64_t within = 0;
    for (int k = 0; k < 4; ++k) {
      const int64_t at = 64 * w + 16 * k;
      __m512i x = _mm512_and_si512(_mm512_loadu_si512(run.w + at), magnitude);
      if (with_gradient) {
        const __m512i g = _mm512_and_si512(_mm512_loadu_si512(run.g + at), magnitude);
        const __m512 product = _mm512_mul_ps(weight, _mm512_castsi512_ps(g));
        x = _mm512_castps_si512(_mm512_add_ps(_mm512_castsi512_ps(x), product));
        x = _mm512_and_si512(x, magnitude);
      }
      x = _mm512_min_epu32(x, most);
      const __mmask16 over = _mm512_cmpgt_epi32_mask(x, top);
      const __mmask16 in =
          static_cast<__mmask16>(_mm512_cmpge_epi32_mask(x, bottom) & ~static_cast<int>(over));
      _mm512_storeu_si512(out, _mm512_maskz_compress_epi32(in, x));
      out += __builtin_popcount(in);
      above |= static_cast<uint64_t>(over) << 16 * k;
      within |= static_cast<uint64_t>(in) << 16 * k;
    }
    sides->above[w] = above;
    sides->within[w] = within;
    sides->above_count += __builtin_popcountll(above);
  }
  sides->value_count = out - sides->values;
  return run.size / 64;
}
#endif

SignificanceRun PartOf(const SignificanceRun& run, int64_t at, int64_t count) {
  return {run.w + at, run.g == nullptr ? nullptr : run.g + at, count};
}

// A tile of at most kTile entries.
void SortTile(const SignificanceRun& tile, float c, uint32_t low, uint32_t high, GatherPath path,
              Sides* sides) {
  sides->value_count = 0;
  sides->above_count = 0;
  int64_t done = 0;  // words
  uint32_t bits[kTile];
#ifdef TESSERA_SIGNIFICANCE_X86
  if (path == GatherPath::kAvx512) {
    done = tile.g == nullptr || c == 0 ? SortAvx512<false>(tile, c, low, high, sides)
                                       : SortAvx512<true>(tile, c, low, high, sides);
    if (64 * done == tile.size) return;
  }
#endif
  // What no register's loop has done, as the tail of a tile, is done from significances that are stored.
  Significances(PartOf(tile, 64 * done, tile.size - 64 * done), c, bits + 64 * done);
#ifdef TESSERA_SIGNIFICANCE_X86
  if (path == GatherPath::kAvx2) done = SortAvx2(bits, tile.size, low, high, sides);
#endif
  SortScalar(bits, done, tile.size, low, high, sides);
}

// Sets bits from bit `at` on.
void Or(const uint64_t* bits, int64_t count, int64_t at, uint64_t* words) {
  uint64_t* to = words + at / 64;
  const int shift = static_cast<int>(at % 64);
  for (int64_t i = 0; i < (count + 63) / 64; ++i, ++to) {
    *to |= bits[i] << shift;
    if (shift != 0 && bits[i] >> (64 - shift) != 0) to[1] |= bits[i] >> (64 - shift);
  }
}

}  // namespace

void Significances(const SignificanceRun& run, float c, uint32_t* out) {
  if (run.g == nullptr || c == 0) return WeightsAlone(run.w, run.size, out);
  WeightsAndGradients(run.w, run.g, c, run.size, out);
}

void AddMagnitudes(const SignificanceRun& run, MagnitudeSums* sums) {
  for (int64_t at = 0; at < run.size; at += kTile) {
    const SignificanceRun tile = PartOf(run, at, std::min(kTile, run.size - at));
    sums->w += SumOfMagnitudes(tile.w, tile.size);
    if (tile.g != nullptr) sums->g += SumOfMagnitudes(tile.g, tile.size);
  }
}

uint64_t SplitAt(const BucketRange& range, const SignificanceRun& run, float c, int64_t first,
                 uint64_t* above, uint64_t* within, std::vector<uint32_t>* values,
                 GatherPath path) {
  // The range is of whole buckets of the upper 16 bits.
  const uint32_t low = range.first << 16;
  const uint32_t high = range.last << 16 | 0xffff;
  uint64_t above_count = 0;
  Sides sides;
  for (int64_t at = 0; at < run.size; at += kTile) {
    const int64_t count = std::min(kTile, run.size - at);
    SortTile(PartOf(run, at, count), c, low, high, path, &sides);
    above_count += static_cast<uint64_t>(sides.above_count);
    Or(sides.above, count, first + at, above);
    Or(sides.within, count, first + at, within);
    values->insert(values->end(), sides.values, sides.values + sides.value_count);
  }
  return above_count;
}

BucketRange RangeOf(const std::vector<uint64_t>& sample_counts, uint64_t wanted, uint64_t entries) {
  double samples = 0;
  for (const uint64_t count : sample_counts) samples += static_cast<double>(count);
  // The k-th largest of all is about the (share * samples)-th of the sample. Six standard deviations of the binomial,
  // and six for small samples, make a miss less likely than 1 in 10^8.
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
  // Counts from the largest bucket down until the wanted number lies within one; `above` is what lies over it.
  for (size_t i = counts.size(); i-- > 0;) {
    threshold.bucket = static_cast<uint32_t>(i);
    if (i == 0 || threshold.above + counts[i] >= wanted) break;
    threshold.above += counts[i];
  }
  return threshold;
}

}  // namespace tessera
