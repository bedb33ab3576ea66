#include "worker/data/resample.h"

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
    sum = sum < none ? none : sum > most ? most : sum;
    const Pixel rounded = __builtin_convertvector(sum, Pixel);
    std::memcpy(out + 4 * i, &rounded, sizeof rounded);
  }
}

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

void Resampler::SetWeights(int64_t from, int64_t to, int64_t begin, int64_t count,
                           Weights* weights) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double support = std::max(scale, 1.0);
  weights->taps = static_cast<int64_t>(std::ceil(support)) * 2 + 1;
  weights->first.resize(count);
  weights->count.resize(count);
  weights->exact.assign(count * weights->taps, 0);
  weights->fixed.resize(count * weights->taps);
  for (int64_t i = 0; i < count; ++i) {
    const double centre = (static_cast<double>(begin + i) + 0.5) * scale;
    const auto first = std::max(int64_t{0}, static_cast<int64_t>(centre - support + 0.5));
    const auto end = std::min(from, static_cast<int64_t>(centre + support + 0.5));
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
      exact[k] /= sum;
      weights->fixed[i * weights->taps + k] =
          static_cast<int32_t>(0.5 + exact[k] * (int64_t{1} << kFixedBits));
    }
  }
}

void Resampler::Resize(const uint8_t* source, int64_t width, int channels, const Rectangle& from,
                       int64_t to_height, int64_t to_width, const Rectangle& window, uint8_t* out) {
  TESSERA_CHECK(channels == 1 || channels == 4);
  SetWeights(from.width, to_width, window.left, window.width, &across_);
  SetWeights(from.height, to_height, window.top, window.height, &down_);
  const int64_t row_begin = down_.first.front();
  const int64_t row_end = down_.first.back() + down_.count.back();
  const int64_t stride = window.width * channels;
  if (bytes_.size() < static_cast<size_t>((row_end - row_begin) * stride)) {
    bytes_.resize((row_end - row_begin) * stride);
  }
  for (int64_t y = row_begin; y < row_end; ++y) {
    const uint8_t* const row = source + ((from.top + y) * width + from.left) * channels;
    (channels == 1 ? RowOfOne : RowOfFour)(row, window.width, across_.first.data(),
                                           across_.count.data(), across_.fixed.data(), across_.taps,
                                           bytes_.data() + (y - row_begin) * stride);
  }
  for (int64_t y = 0; y < window.height; ++y) {
    Column(bytes_.data() + (down_.first[y] - row_begin) * stride, stride, stride,
           down_.fixed.data() + y * down_.taps, down_.count[y], out + y * stride);
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
