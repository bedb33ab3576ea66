// What group_norm.cc runs.
#ifndef TESSERA_KERNELS_CUDA_GROUP_NORM_KERNELS_H_
#define TESSERA_KERNELS_CUDA_GROUP_NORM_KERNELS_H_

#include <cmath>
#include <cstdint>

#include "kernels/cuda/tiles.h"

namespace tessera::cuda {

// Rows of values in groups, as GroupsShape has them.
struct RowGroups {
  int64_t positions, channels, groups;
  TESSERA_HOST_DEVICE int64_t group_channels() const { return channels / groups; }
  TESSERA_HOST_DEVICE int64_t group_size() const { return positions * group_channels(); }

  // Calls f(index of the value, its channel) for a thread's values of a group of a row, `at` of rows times groups.
  template <int kThreads, typename F>
  TESSERA_HOST_DEVICE void ForOwn(int64_t at, int thread, const F& f) const {
    const int64_t row = at / groups, first = at % groups * group_channels();
    const int64_t begin = row * positions * channels + first;
    const auto length = static_cast<uint32_t>(group_channels());
    const auto size = static_cast<uint32_t>(group_size());
    for (auto i = static_cast<uint32_t>(thread); i < size; i += kThreads) {
      const uint32_t position = i / length, c = i % length;
      f(begin + int64_t{position} * channels + c, first + c);
    }
  }
};

// The threads' sums, in f64.
struct TwoSums {
  double a, b;
};

// What the two kernels of a group of a row have in common: a block has the group.
struct GroupBlock {
  static constexpr int kThreads = 256;
  static constexpr int kPhases = 3;
  using Value = TwoSums;
  struct Shared {
    Value total;
  };
  TESSERA_HOST_DEVICE static Value Combine(const Value& a, const Value& b) {
    return {a.a + b.a, a.b + b.b};
  }
  static constexpr bool Reduces(int phase) { return phase < 2; }
};

// Mean, deviation and the normalised values, in three readings of x.
struct GroupNormForward : GroupBlock {
  struct Own {
    Value value;
    double mean;
  };
  RowGroups of;
  double epsilon;
  const float* x;
  const float* scale;  // null: 1
  const float* shift;  // null: 0
  float* mean;
  float* inverse_sigma;
  float* y;

  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, Shared& shared, Own& own) const {
    const double share = 1.0 / static_cast<double>(of.group_size());
    if constexpr (phase == 0) {
      own.value = {};
      of.ForOwn<kThreads>(lane.block, lane.thread,
                          [&](int64_t i, int64_t) { own.value.a += static_cast<double>(x[i]); });
    } else if constexpr (phase == 1) {
      own.mean = shared.total.a * share;
      own.value = {};
      of.ForOwn<kThreads>(lane.block, lane.thread, [&](int64_t i, int64_t) {
        const double distance = static_cast<double>(x[i]) - own.mean;
        own.value.a += distance * distance;
      });
    } else {
      const auto center = static_cast<float>(own.mean);
      const auto factor = static_cast<float>(1.0 / std::sqrt(shared.total.a * share + epsilon));
      if (lane.thread == 0) {
        mean[lane.block] = center;
        inverse_sigma[lane.block] = factor;
      }
      of.ForOwn<kThreads>(lane.block, lane.thread, [&](int64_t i, int64_t c) {
        const float of_channel = scale == nullptr ? factor : factor * scale[c];
        y[i] = of_channel * (x[i] - center) + (shift == nullptr ? 0.0f : shift[c]);
      });
    }
  }
};

// dx = inverse_sigma (scale dy - mean(scale dy) - x_hat mean(scale dy x_hat))
struct GroupNormBackward : GroupBlock {
  static constexpr int kPhases = 2;
  struct Own {
    Value value;
  };
  static constexpr bool Reduces(int phase) { return phase == 0; }
  RowGroups of;
  const float* x;
  const float* mean;
  const float* inverse_sigma;
  const float* scale;  // null: 1
  const float* dy;
  float* dx;

  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, Shared& shared, Own& own) const {
    const float center = mean[lane.block], factor = inverse_sigma[lane.block];
    if constexpr (phase == 0) {
      own.value = {};
      of.ForOwn<kThreads>(lane.block, lane.thread, [&](int64_t i, int64_t c) {
        const float x_hat = (x[i] - center) * factor;
        const double g =
            static_cast<double>(dy[i]) * (scale == nullptr ? 1.0 : static_cast<double>(scale[c]));
        own.value.a += g;
        own.value.b += g * static_cast<double>(x_hat);
      });
    } else {
      const double share = 1.0 / static_cast<double>(of.group_size());
      const auto mean_g = static_cast<float>(shared.total.a * share);
      const auto mean_g_x_hat = static_cast<float>(shared.total.b * share);
      of.ForOwn<kThreads>(lane.block, lane.thread, [&](int64_t i, int64_t c) {
        const float x_hat = (x[i] - center) * factor;
        const float g = scale == nullptr ? dy[i] : scale[c] * dy[i];
        dx[i] = factor * (g - mean_g - x_hat * mean_g_x_hat);
      });
    }
  }
};

// Sums of dy and dy x_hat over all positions of all rows, for each channel.
struct GroupNormSumsOp {
  static constexpr int kSums = 2;
  static constexpr int kIn = 2;
  struct Column {
    int64_t group;
  };
  RowGroups of;
  const float* x;
  const float* dy;
  const float* mean;
  const float* inverse_sigma;
  bool adds;      // to dscale and dshift
  float* dscale;  // null: not wanted
  float* dshift;  // null: not wanted
  TESSERA_HOST_DEVICE Column At(int64_t c) const { return {c / of.group_channels()}; }
  // dy, and x_hat. `place` counts the positions of all rows, of which there are fewer than 2^32: 64 bits divide slowly.
  TESSERA_HOST_DEVICE void LoadAt(const Column& column, int64_t place, int64_t i, float* v) const {
    const uint32_t row = static_cast<uint32_t>(place) / static_cast<uint32_t>(of.positions);
    const int64_t group = row * of.groups + column.group;
    v[0] = dy[i];
    v[1] = (x[i] - mean[group]) * inverse_sigma[group];
  }
  TESSERA_HOST_DEVICE void Add(const Column&, const float* v, double* sums) const {
    sums[0] += static_cast<double>(v[0]);
    sums[1] += static_cast<double>(v[0]) * static_cast<double>(v[1]);
  }
  TESSERA_HOST_DEVICE void Finish(int64_t c, const double* sums) const {
    if (dshift != nullptr) StoreSum(sums[0], adds, dshift + c);
    if (dscale != nullptr) StoreSum(sums[1], adds, dscale + c);
  }
};

}  // namespace tessera::cuda

#endif  // TESSERA_KERNELS_CUDA_GROUP_NORM_KERNELS_H_
