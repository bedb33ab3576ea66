#include "kernels/cpu/group_norm.h"

#include <algorithm>
#include <cmath>

#include "common/base/vector_clones.h"

#define TESSERA_INLINE inline __attribute__((always_inline))

namespace tessera {
namespace {

// Channels that are worked on together: their f64 sums stay in the first-level cache.
constexpr int64_t kBlock = 256;

// Groups of a row whose channels are kBlock in all at most, or one group, whose channels come in several blocks.
struct SomeGroups {
  int64_t first;
  int64_t count;
};
struct Channels {
  int64_t begin;
  int64_t width;  // at most kBlock
};

TESSERA_INLINE int64_t GroupsAtOnce(const GroupsShape& shape) {
  return std::max<int64_t>(1, kBlock / shape.group_channels());
}

TESSERA_INLINE Channels BlockOf(const GroupsShape& shape, const SomeGroups& groups, int64_t at) {
  const int64_t length = shape.group_channels();
  return {groups.first * length + at, std::min(kBlock, groups.count * length - at)};
}

// The sum in a fixed number of lanes, so that it does not depend on the register's width.
TESSERA_INLINE double LaneSum(int64_t n, const double* values) {
  constexpr int64_t kLanes = 16;
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
#pragma omp simd
    for (int64_t k = 0; k < kLanes; ++k) lanes[k] += values[i + k];
  }
  for (int64_t k = 0; i + k < n; ++k) lanes[k] += values[i + k];
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

// Adds sums of channels to those of their groups.
TESSERA_INLINE void Fold(const SomeGroups& groups, int64_t width, const double* of_channels,
                         double* of_groups) {
  const int64_t length = width / groups.count;
  for (int64_t g = 0; g < groups.count; ++g) {
    of_groups[g] += LaneSum(length, of_channels + g * length);
  }
}

// Gives each channel of a block what its group has.
template <typename T>
TESSERA_INLINE void Spread(const SomeGroups& groups, int64_t width, const T* of_groups,
                           T* of_channels) {
  const int64_t length = width / groups.count;
  for (int64_t g = 0; g < groups.count; ++g) {
    std::fill_n(of_channels + g * length, length, of_groups[g]);
  }
}

// Adds up a row's values by group, or with `center` the squares of their distances to it.
TESSERA_INLINE void SumGroups(const GroupsShape& shape, const SomeGroups& groups, const float* row,
                              const double* center, double* totals) {
  const int64_t channels = groups.count * shape.group_channels();
  for (int64_t at = 0; at < channels; at += kBlock) {
    const Channels block = BlockOf(shape, groups, at);
    double sums[kBlock] = {}, centers[kBlock];
    if (center != nullptr) Spread(groups, block.width, center, centers);
    for (int64_t p = 0; p < shape.positions; ++p) {
      const float* const from = row + p * shape.channels + block.begin;
      if (center == nullptr) {
#pragma omp simd
        for (int64_t i = 0; i < block.width; ++i) sums[i] += static_cast<double>(from[i]);
      } else {
#pragma omp simd
        for (int64_t i = 0; i < block.width; ++i) {
          const double distance = static_cast<double>(from[i]) - centers[i];
          sums[i] += distance * distance;
        }
      }
    }
    Fold(groups, block.width, sums, totals);
  }
}

// y = factor (x - mean) + shift of a block of channels.
TESSERA_INLINE void NormalizeBlock(const GroupsShape& shape, const SomeGroups& groups,
                                   const Channels& block, const GroupNormKernel::Affine& affine,
                                   const float* mean, const float* inverse_sigma, const float* row,
                                   float* y) {
  float factor[kBlock], center[kBlock], offset[kBlock];
  Spread(groups, block.width, mean, center);
  Spread(groups, block.width, inverse_sigma, factor);
  for (int64_t i = 0; i < block.width; ++i) {
    const int64_t c = block.begin + i;
    if (affine.scale != nullptr) factor[i] *= affine.scale[c];
    offset[i] = affine.shift == nullptr ? 0.0f : affine.shift[c];
  }
  for (int64_t p = 0; p < shape.positions; ++p) {
    const float* const from = row + p * shape.channels + block.begin;
    float* const to = y + p * shape.channels + block.begin;
#pragma omp simd
    for (int64_t i = 0; i < block.width; ++i) {
      to[i] = factor[i] * (from[i] - center[i]) + offset[i];
    }
  }
}

TESSERA_VECTOR_CLONES void ForwardRow(const GroupsShape& shape, double epsilon, const float* row,
                                      const GroupNormKernel::Affine& affine, float* mean,
                                      float* inverse_sigma, float* y) {
  const int64_t at_once = GroupsAtOnce(shape), length = shape.group_channels();
  const double share = 1.0 / static_cast<double>(shape.positions * length);
  for (int64_t first = 0; first < shape.groups; first += at_once) {
    const SomeGroups groups{first, std::min(at_once, shape.groups - first)};
    double center[kBlock] = {}, square[kBlock] = {};
    // The mean comes first, then the squares of distances to it: E[x^2] - E[x]^2 would cancel where the mean is large.
    SumGroups(shape, groups, row, nullptr, center);
    for (int64_t g = 0; g < groups.count; ++g) center[g] *= share;
    SumGroups(shape, groups, row, center, square);
    for (int64_t g = 0; g < groups.count; ++g) {
      mean[first + g] = static_cast<float>(center[g]);
      inverse_sigma[first + g] = static_cast<float>(1.0 / std::sqrt(square[g] * share + epsilon));
    }
    for (int64_t at = 0; at < groups.count * length; at += kBlock) {
      NormalizeBlock(shape, groups, BlockOf(shape, groups, at), affine, mean + first,
                     inverse_sigma + first, row, y);
    }
  }
}

// Sums of dy and of dy x_hat, by channel.
struct Sums {
  double g[kBlock];
  double g_x_hat[kBlock];
};

// What a block's channels of a row have in common, channel by channel.
struct RowBlock {
  float mean[kBlock];
  float inverse_sigma[kBlock];
};

TESSERA_INLINE void AddGradients(const GroupsShape& shape, const Channels& block,
                                 const RowBlock& of, const float* x, const float* dy, Sums* sums) {
  for (int64_t p = 0; p < shape.positions; ++p) {
    const int64_t at = p * shape.channels + block.begin;
    const float* const from = x + at;
    const float* const slope = dy + at;
#pragma omp simd
    for (int64_t i = 0; i < block.width; ++i) {
      const float x_hat = (from[i] - of.mean[i]) * of.inverse_sigma[i];
      sums->g[i] += static_cast<double>(slope[i]);
      sums->g_x_hat[i] += static_cast<double>(slope[i]) * static_cast<double>(x_hat);
    }
  }
}

// dx = inverse_sigma (scale dy - mean(scale dy) - x_hat mean(scale dy x_hat)) of one row. `scale` may be null. The
// statistics are the row's.
TESSERA_VECTOR_CLONES void BackwardRow(const GroupsShape& shape, const float* x, const float* mean,
                                       const float* inverse_sigma, const float* scale,
                                       const float* dy, float* dx) {
  const int64_t at_once = GroupsAtOnce(shape), length = shape.group_channels();
  const double share = 1.0 / static_cast<double>(shape.positions * length);
  for (int64_t first = 0; first < shape.groups; first += at_once) {
    const SomeGroups groups{first, std::min(at_once, shape.groups - first)};
    const int64_t channels = groups.count * length;
    double g[kBlock] = {}, g_x_hat[kBlock] = {};
    RowBlock of;
    for (int64_t at = 0; at < channels; at += kBlock) {
      const Channels block = BlockOf(shape, groups, at);
      Spread(groups, block.width, mean + first, of.mean);
      Spread(groups, block.width, inverse_sigma + first, of.inverse_sigma);
      Sums sums = {};
      AddGradients(shape, block, of, x, dy, &sums);
      for (int64_t i = 0; scale != nullptr && i < block.width; ++i) {
        sums.g[i] *= static_cast<double>(scale[block.begin + i]);
        sums.g_x_hat[i] *= static_cast<double>(scale[block.begin + i]);
      }
      Fold(groups, block.width, sums.g, g);
      Fold(groups, block.width, sums.g_x_hat, g_x_hat);
    }
    float mean_g[kBlock], mean_g_x_hat[kBlock];
    for (int64_t k = 0; k < groups.count; ++k) {
      mean_g[k] = static_cast<float>(g[k] * share);
      mean_g_x_hat[k] = static_cast<float>(g_x_hat[k] * share);
    }
    // The groups' means over all their channels are known now, so x and dy are read a second time.
    for (int64_t at = 0; at < channels; at += kBlock) {
      const Channels block = BlockOf(shape, groups, at);
      float factor[kBlock], offset[kBlock], slope[kBlock];
      Spread(groups, block.width, mean + first, of.mean);
      Spread(groups, block.width, inverse_sigma + first, of.inverse_sigma);
      Spread(groups, block.width, mean_g, offset);
      Spread(groups, block.width, mean_g_x_hat, slope);
      for (int64_t i = 0; i < block.width; ++i) {
        factor[i] = scale == nullptr ? 1.0f : scale[block.begin + i];
      }
      for (int64_t p = 0; p < shape.positions; ++p) {
        const int64_t begin = p * shape.channels + block.begin;
        const float* const from = x + begin;
        const float* const gradient = dy + begin;
        float* const to = dx + begin;
#pragma omp simd
        for (int64_t i = 0; i < block.width; ++i) {
          const float x_hat = (from[i] - of.mean[i]) * of.inverse_sigma[i];
          to[i] = of.inverse_sigma[i] * (factor[i] * gradient[i] - offset[i] - x_hat * slope[i]);
        }
      }
    }
  }
}

// Sums over all rows of a block of channels, which may have any groups.
TESSERA_VECTOR_CLONES void SumRows(const GroupsShape& shape, const Channels& block,
                                   const GroupNormKernel::BackwardInput& in, Sums* sums) {
  const int64_t length = shape.group_channels();
  RowBlock of;
  for (int64_t row = 0; row < shape.rows; ++row) {
    const float* const mean = in.mean + row * shape.groups;
    const float* const inverse_sigma = in.inverse_sigma + row * shape.groups;
    for (int64_t i = 0; i < block.width;) {
      const int64_t group = (block.begin + i) / length;
      const int64_t end = std::min(block.width, (group + 1) * length - block.begin);
      std::fill(of.mean + i, of.mean + end, mean[group]);
      std::fill(of.inverse_sigma + i, of.inverse_sigma + end, inverse_sigma[group]);
      i = end;
    }
    AddGradients(shape, block, of, in.x + row * shape.row_size(), in.dy + row * shape.row_size(),
                 sums);
  }
}

// Stores sums that were formed in f64, rounded once.
void Put(const Channels& block, const double* sums, WriteMode mode, float* gradient) {
  float* const to = gradient + block.begin;
  for (int64_t i = 0; i < block.width; ++i) {
    const double before = mode == WriteMode::kAdd ? static_cast<double>(to[i]) : 0.0;
    to[i] = static_cast<float>(before + sums[i]);
  }
}

}  // namespace

void CpuGroupNorm::Forward(const GroupsShape& shape, double epsilon, const float* x,
                           const Affine& affine, float* mean, float* inverse_sigma, float* y) {
  threads_.SplitWhole(shape.rows, 3 * shape.row_size(), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t at = row * shape.row_size();
      ForwardRow(shape, epsilon, x + at, affine, mean + row * shape.groups,
                 inverse_sigma + row * shape.groups, y + at);
    }
  });
}

void CpuGroupNorm::Backward(const GroupsShape& shape, const BackwardInput& in, WriteMode mode,
                            float* dscale, float* dshift, float* dx) {
  // dx may lie where dy does, which the sums over rows read.
  if (dscale != nullptr || dshift != nullptr) {
    const int64_t values = shape.rows * shape.positions;
    threads_.Split(shape.channels, 2 * values, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; c += kBlock) {
        const Channels block{c, std::min(kBlock, end - c)};
        Sums sums = {};
        SumRows(shape, block, in, &sums);
        if (dscale != nullptr) Put(block, sums.g_x_hat, mode, dscale);
        if (dshift != nullptr) Put(block, sums.g, mode, dshift);
      }
    });
  }
  if (dx == nullptr) return;
  threads_.SplitWhole(shape.rows, 4 * shape.row_size(), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t at = row * shape.row_size();
      BackwardRow(shape, in.x + at, in.mean + row * shape.groups,
                  in.inverse_sigma + row * shape.groups, in.scale, in.dy + at, dx + at);
    }
  });
}

}  // namespace tessera

#undef TESSERA_INLINE
