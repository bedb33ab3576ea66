#include "worker/data/resample.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/base/check.h"
#include "common/base/vector_clones.h"

namespace tessera {
namespace {

// A sum of 8-bit values with these binary places fits 32 bits, with two bits to spare.
constexpr int kFixedBits = 32 - 8 - 2;
constexpr int32_t kFixedHalf = 1 << (kFixedBits - 1);

uint8_t ToByte(int32_t sum) { return static_cast<uint8_t>(std::clamp(sum >> kFixedBits, 0, 255)); }

void RowOfOne(const uint8_t* x, int64_t count, const int32_t* first, const int32_t* taps_of,
              const int32_t* weights, int64_t taps, uint8_t* out) {
  for (int64_t i = 0; i < count; ++i, weights += taps) {
    const uint8_t* const from = x + first[i];
    // The half rounds the sum when its binary places are cut off.
    int32_t sum = kFixedHalf;
    for (int32_t k = 0; k < taps_of[i]; ++k) sum += weights[k] * from[k];
    out[i] = ToByte(sum);
  }
}

// The four values of a pixel are summed at once.
typedef int32_t Lanes __attribute__((vector_size(16)));
typedef uint8_t Pixel __attribute__((vector_size(4)));

TESSERA_VECTOR_CLONES
void RowOfFour(const uint8_t* __restrict x, int64_t count, const int32_t* __restrict first,
               const int32_t* __restrict taps_of, const int32_t* __restrict weights, int64_t taps,
               uint8_t* __restrict out) {
  const Lanes none = {0, 0, 0, 0}, most = {255, 255, 255, 255};
  for (int64_t i = 0; i < count; ++i, weights += taps) {
    const uint8_t* from = x + 4 * static_cast<int64_t>(first[i]);
    Lanes sum = {kFixedHalf, kFixedHalf, kFixedHalf, kFixedHalf};
    for (int32_t k = 0; k < taps_of[i]; ++k, from += 4) {
      Pixel pixel;
      std::memcpy(&pixel, from, sizeof pixel);
      sum += __builtin_convertvector(pixel, Lanes) * weights[k];
    }
    sum >>= kFixedBits;
    // The triangle's weights are never negative, and their rounded sum may exceed 1 by a little.
    sum = sum < none ? none : sum > most ? most : sum;
    const Pixel rounded = __builtin_convertvector(sum, Pixel);
    std::memcpy(out + 4 * i, &rounded, sizeof rounded);
  }
}

#if defined(__x86_64__)
#define TESSERA_RESAMPLE_AVX2 1

// A weight is split into 15 and 8 bits, so that products of bytes with both fit the 16-bit multiplication that adds two
// of them at once. The sum of the parts is the same integer as that of the whole products.
constexpr int kLowBits = 8;

bool HasAvx2() {
  static const bool has = __builtin_cpu_supports("avx2") != 0;
  return has;
}

// Four source pixels at once, which have 16 weights of each part: those of pixels 0 and 1 four times, and those of
// pixels 2 and 3 four times.
__attribute__((target("avx2"))) void RowOfFourAvx2(const uint8_t* x, int64_t count,
                                                   const int32_t* first, const int16_t* high,
                                                   const int16_t* low, int64_t quads,
                                                   uint8_t* out) {
  // Values of the first two pixels side by side in the lower half, those of the other two in the upper half.
  const __m256i pairs = _mm256_setr_epi8(0, -1, 4, -1, 1, -1, 5, -1, 2, -1, 6, -1, 3, -1, 7, -1, 8,
                                         -1, 12, -1, 9, -1, 13, -1, 10, -1, 14, -1, 11, -1, 15, -1);
  const __m128i half = _mm_set1_epi32(kFixedHalf);
  for (int64_t i = 0; i < count; ++i) {
    const uint8_t* const from = x + 4 * static_cast<int64_t>(first[i]);
    __m256i highs = _mm256_setzero_si256(), lows = _mm256_setzero_si256();
    for (int64_t q = 0; q < quads; ++q, high += 16, low += 16) {
      const __m128i pixels = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 16 * q));
      const __m256i values = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(pixels), pairs);
      const __m256i by_high =
          _mm256_madd_epi16(values, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(high)));
      const __m256i by_low =
          _mm256_madd_epi16(values, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(low)));
      highs = _mm256_add_epi32(highs, by_high);
      lows = _mm256_add_epi32(lows, by_low);
    }
    const __m256i both = _mm256_add_epi32(_mm256_slli_epi32(highs, kLowBits), lows);
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
    sum = _mm_srai_epi32(_mm_add_epi32(sum, half), kFixedBits);
    sum = _mm_packs_epi32(sum, sum);
    const int32_t pixel = _mm_cvtsi128_si32(_mm_packus_epi16(sum, sum));
    std::memcpy(out + 4 * i, &pixel, sizeof pixel);
  }
}

// One row of the result, 16 values at once, from two rows at a time. Returns how many values it has made.
__attribute__((target("avx2"))) int64_t ColumnAvx2(const uint8_t* x, int64_t stride, int64_t values,
                                                   const int32_t* weights, int32_t taps,
                                                   uint8_t* out) {
  const __m256i half = _mm256_set1_epi32(kFixedHalf);
  int64_t begin = 0;
  for (; begin + 16 <= values; begin += 16) {
    __m256i high_a = _mm256_setzero_si256(), high_b = high_a, low_a = high_a, low_b = high_a;
    // Two rows share a multiplication: their bytes are interleaved, and weights are pairs.
    for (int32_t k = 0; k < taps; k += 2) {
      const bool has_two = k + 1 < taps;
      const uint8_t* const row = x + k * stride + begin;
      const __m128i one = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row));
      const __m128i two =
          has_two ? _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + stride)) : one;
      const int32_t w = weights[k], v = has_two ? weights[k + 1] : 0;
      const __m256i high = _mm256_set1_epi32((w >> kLowBits) | (v >> kLowBits) << 16);
      const __m256i low = _mm256_set1_epi32((w & 255) | (v & 255) << 16);
      const __m256i a = _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(one, two));
      const __m256i b = _mm256_cvtepu8_epi16(_mm_unpackhi_epi8(one, two));
      high_a = _mm256_add_epi32(high_a, _mm256_madd_epi16(a, high));
      high_b = _mm256_add_epi32(high_b, _mm256_madd_epi16(b, high));
      low_a = _mm256_add_epi32(low_a, _mm256_madd_epi16(a, low));
      low_b = _mm256_add_epi32(low_b, _mm256_madd_epi16(b, low));
    }
    const __m256i sum_a = _mm256_add_epi32(_mm256_slli_epi32(high_a, kLowBits), low_a);
    const __m256i sum_b = _mm256_add_epi32(_mm256_slli_epi32(high_b, kLowBits), low_b);
    const __m256i words =
        _mm256_packs_epi32(_mm256_srai_epi32(_mm256_add_epi32(sum_a, half), kFixedBits),
                           _mm256_srai_epi32(_mm256_add_epi32(sum_b, half), kFixedBits));
    // Packing goes by halves of the register: their quarters are put in order.
    const __m256i ordered = _mm256_permute4x64_epi64(words, 0xd8);
    const __m128i bytes =
        _mm_packus_epi16(_mm256_castsi256_si128(ordered), _mm256_extracti128_si256(ordered, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + begin), bytes);
  }
  return begin;
}
#endif

// Where the triangles of weights stand that `from` values are scaled to `to` with.
struct Triangles {
  Triangles(int64_t from, int64_t to)
      : from(from),
        scale(static_cast<double>(from) / static_cast<double>(to)),
        support(std::max(scale, 1.0)) {}

  // A value lies in the middle of its interval, as in Pillow: the edges of both pictures meet.
  double CentreOf(int64_t value) const { return (static_cast<double>(value) + 0.5) * scale; }
  Reach At(int64_t value) const {
    const double centre = CentreOf(value);
    return {std::max(int64_t{0}, static_cast<int64_t>(centre - support + 0.5)),
            std::min(from, static_cast<int64_t>(centre + support + 0.5))};
  }

  const int64_t from;
  const double scale;
  const double support;
};

// Sums of so many values are 1 KiB, which stays in the first-level cache.
constexpr int64_t kColumnBlock = 256;

// One row of the result from the rows [x, x + taps * stride).
TESSERA_VECTOR_CLONES
void Column(const uint8_t* __restrict x, int64_t stride, int64_t values,
            const int32_t* __restrict weights, int32_t taps, uint8_t* __restrict out) {
  int32_t sums[kColumnBlock];
  for (int64_t begin = 0; begin < values; begin += kColumnBlock) {
    const int64_t count = std::min(kColumnBlock, values - begin);
    for (int64_t i = 0; i < count; ++i) sums[i] = kFixedHalf;
    for (int32_t k = 0; k < taps; ++k) {
      const uint8_t* const row = x + k * stride + begin;
      const int32_t weight = weights[k];
      for (int64_t i = 0; i < count; ++i) sums[i] += row[i] * weight;
    }
    for (int64_t i = 0; i < count; ++i) {
      const int32_t value = sums[i] >> kFixedBits;
      out[begin + i] = static_cast<uint8_t>(value < 0 ? 0 : value > 255 ? 255 : value);
    }
  }
}

}  // namespace

Reach ReachOf(int64_t from, int64_t to, int64_t begin, int64_t count) {
  const Triangles triangles(from, to);
  // What all values of the part reach: the first one's first to the last one's last.
  return {triangles.At(begin).begin, triangles.At(begin + count - 1).end};
}

void Resampler::SetWeights(int64_t from, int64_t to, int64_t begin, int64_t count,
                           Weights* weights) {
  const Triangles triangles(from, to);
  // Where a picture is scaled down the triangle is as wide as the scale, so that all pixels count.
  const double support = triangles.support;
  weights->taps = static_cast<int64_t>(std::ceil(support)) * 2 + 1;
  weights->first.resize(count);
  weights->count.resize(count);
  weights->exact.assign(count * weights->taps, 0);
  weights->fixed.resize(count * weights->taps);
  for (int64_t i = 0; i < count; ++i) {
    const double centre = triangles.CentreOf(begin + i);
    const auto [first, end] = triangles.At(begin + i);
    double* const exact = weights->exact.data() + i * weights->taps;
    double sum = 0;
    for (int64_t k = first; k < end; ++k) {
      const double distance = (static_cast<double>(k) - centre + 0.5) * (1.0 / support);
      exact[k - first] = std::max(0.0, 1.0 - std::abs(distance));
      sum += exact[k - first];
    }
    TESSERA_CHECK(sum > 0);
    weights->first[i] = static_cast<int32_t>(first);
    weights->count[i] = static_cast<int32_t>(end - first);
    for (int64_t k = 0; k < end - first; ++k) {
      // Weights of a value add up to 1, at the edges too, where part of the triangle is outside.
      exact[k] /= sum;
      weights->fixed[i * weights->taps + k] =
          static_cast<int32_t>(0.5 + exact[k] * (int64_t{1} << kFixedBits));
    }
  }
}

int64_t Resampler::QuadsOf(int64_t from, const Weights& weights) {
#ifdef TESSERA_RESAMPLE_AVX2
  // Four pixels are read at once, also where fewer are wanted: the part must have as many.
  const int64_t quads = (*std::max_element(weights.count.begin(), weights.count.end()) + 3) / 4;
  return HasAvx2() && 4 * quads <= from ? quads : 0;
#else
  return 0;
#endif
}

void Resampler::SplitWeights(int64_t from, int64_t quads, Weights* weights) {
#ifdef TESSERA_RESAMPLE_AVX2
  const auto count = static_cast<int64_t>(weights->first.size());
  weights->quad_first.resize(count);
  weights->high.assign(count * quads * 16, 0);
  weights->low.assign(count * quads * 16, 0);
  for (int64_t i = 0; i < count; ++i) {
    // No value beyond the part is read: the last windows begin earlier, with weights of 0.
    const int32_t first = weights->first[i];
    const auto begin = static_cast<int32_t>(std::min<int64_t>(first, from - 4 * quads));
    weights->quad_first[i] = begin;
    for (int32_t k = 0; k < weights->count[i]; ++k) {
      const int32_t weight = weights->fixed[i * weights->taps + k];
      const int32_t pixel = k + first - begin;
      const int64_t at = i * quads * 16 + pixel / 4 * 16 + pixel % 4 / 2 * 8 + pixel % 2;
      for (int value = 0; value < 4; ++value) {
        weights->high[at + 2 * value] = static_cast<int16_t>(weight >> kLowBits);
        weights->low[at + 2 * value] = static_cast<int16_t>(weight & 255);
      }
    }
  }
#endif
}

void Resampler::Resize(const uint8_t* source, int64_t width, int channels, const Rectangle& from,
                       int64_t to_height, int64_t to_width, const Rectangle& window, uint8_t* out) {
  TESSERA_CHECK(channels == 1 || channels == 4);
  SetWeights(from.width, to_width, window.left, window.width, &across_);
  SetWeights(from.height, to_height, window.top, window.height, &down_);
  // Rows that no value of the window reaches are not scaled.
  const int64_t row_begin = down_.first.front();
  const int64_t row_end = down_.first.back() + down_.count.back();
  const int64_t stride = window.width * channels;
  if (bytes_.size() < static_cast<size_t>((row_end - row_begin) * stride)) {
    bytes_.resize((row_end - row_begin) * stride);
  }
  const int64_t quads = channels == 4 ? QuadsOf(from.width, across_) : 0;
  if (quads > 0) SplitWeights(from.width, quads, &across_);
  for (int64_t y = row_begin; y < row_end; ++y) {
    const uint8_t* const row = source + ((from.top + y) * width + from.left) * channels;
#ifdef TESSERA_RESAMPLE_AVX2
    if (quads > 0) {
      RowOfFourAvx2(row, window.width, across_.quad_first.data(), across_.high.data(),
                    across_.low.data(), quads, bytes_.data() + (y - row_begin) * stride);
      continue;
    }
#endif
    (channels == 1 ? RowOfOne : RowOfFour)(row, window.width, across_.first.data(),
                                           across_.count.data(), across_.fixed.data(), across_.taps,
                                           bytes_.data() + (y - row_begin) * stride);
  }
  for (int64_t y = 0; y < window.height; ++y) {
    const uint8_t* const rows = bytes_.data() + (down_.first[y] - row_begin) * stride;
    const int32_t* const weights = down_.fixed.data() + y * down_.taps;
    int64_t done = 0;
#ifdef TESSERA_RESAMPLE_AVX2
    if (HasAvx2()) {
      done = ColumnAvx2(rows, stride, stride, weights, down_.count[y], out + y * stride);
    }
#endif
    Column(rows + done, stride, stride - done, weights, down_.count[y], out + y * stride + done);
  }
}

void Resampler::Resize(const float* source, int64_t width, const Rectangle& from, int64_t to_height,
                       int64_t to_width, float* out) {
  SetWeights(from.width, to_width, 0, to_width, &across_);
  SetWeights(from.height, to_height, 0, to_height, &down_);
  floats_.resize(from.height * to_width);
  for (int64_t y = 0; y < from.height; ++y) {
    const float* const row = source + (from.top + y) * width + from.left;
    for (int64_t x = 0; x < to_width; ++x) {
      double sum = 0;
      for (int32_t k = 0; k < across_.count[x]; ++k) {
        sum += across_.exact[x * across_.taps + k] * row[across_.first[x] + k];
      }
      floats_[y * to_width + x] = static_cast<float>(sum);
    }
  }
  for (int64_t y = 0; y < to_height; ++y) {
    for (int64_t x = 0; x < to_width; ++x) {
      double sum = 0;
      for (int32_t k = 0; k < down_.count[y]; ++k) {
        sum += down_.exact[y * down_.taps + k] * floats_[(down_.first[y] + k) * to_width + x];
      }
      out[y * to_width + x] = static_cast<float>(sum);
    }
  }
}

}  // namespace tessera
