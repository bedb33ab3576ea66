// What pooling.cc runs: sums in the order of kernels/cpu/pooling.cc, to its bits. Gradients are gathered
// by the places that they belong to, so that each is one thread's, unless no place has two windows.
#ifndef TESSERA_KERNELS_CUDA_POOLING_KERNELS_H_
#define TESSERA_KERNELS_CUDA_POOLING_KERNELS_H_

#include <cstdint>

#include "kernels/cuda/image_windows.h"
#include "kernels/cuda/tiles.h"

namespace tessera::cuda {

// A thread has a place and a channel, or where kWide four of them: rows of channels must begin at multiples
// of 16 bytes then.
template <bool kWide>
struct PoolArrays : OnePhase {
  static constexpr int kChannels = kWide ? 4 : 1;

  ImageWindows windows;
  uint32_t items;  // threads: of what each has one of, by kChannels
  float share;     // of one place, in an average
  const float* x;
  const float* dy;
  float* out;

  int64_t blocks() const { return CeilDiv(items, kThreads); }

 protected:
  // Calls f(place, first channel, number of the item) for the thread's own, if it has one.
  template <typename F>
  TESSERA_HOST_DEVICE void ForItem(const Lane& lane, int32_t height, int32_t width,
                                   const F& f) const {
    const int64_t item = lane.block * kThreads + lane.thread;
    if (item >= items) return;
    const auto at = static_cast<uint32_t>(item);
    const uint32_t groups = static_cast<uint32_t>(windows.channels) / kChannels;
    f(ImageWindows::PlaceAt(at / groups, height, width), at % groups * kChannels, item);
  }

  // Calls f(place of `out`, first channel, sum), and stores the sum.
  template <typename F>
  TESSERA_HOST_DEVICE void Make(const Lane& lane, int32_t height, int32_t width, const F& f) const {
    ForItem(lane, height, width, [&](const ImageWindows::Place& at, uint32_t c, int64_t item) {
      float sum[kChannels] = {};
      f(at, c, sum);
      if constexpr (kWide) {
        StoreFour(sum, true, out + item * kChannels);
      } else {
        out[item] = sum[0];
      }
    });
  }

  // Values of `all` at a place, from channel c on.
  TESSERA_HOST_DEVICE void Load(const float* all, int64_t place, uint32_t c, float* to) const {
    const float* const from = all + place * windows.channels + c;
    if constexpr (kWide) {
      LoadFour(from, true, to);
    } else {
      to[0] = from[0];
    }
  }

  // Calls take(k, whether channel k takes the value there instead of best[k], place in the window, number of
  // the place) for the window's places.
  template <typename F>
  TESSERA_HOST_DEVICE void FindLargest(const ImageWindows::Place& to, uint32_t c, float* best,
                                       const F& take) const {
    bool first = true;
    windows.ForInside(to, [&](int32_t i, int32_t j, int64_t place) {
      float value[kChannels];
      Load(x, place, c, value);
      TESSERA_UNROLL for (int k = 0; k < kChannels; ++k) {
        // A NaN is larger than all others.
        const bool takes = first || (!(value[k] <= best[k]) && best[k] == best[k]);
        best[k] = takes ? value[k] : best[k];
        take(k, takes, i * windows.width + j, place);
      }
      first = false;
    });
  }
};

template <bool kWide>
struct MaxPool : PoolArrays<kWide> {
  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, OnePhase::Shared&, OnePhase::Own&) const {
    this->Make(lane, this->windows.to_height, this->windows.to_width,
               [&](const ImageWindows::Place& to, uint32_t c, float* best) {
                 this->FindLargest(to, c, best, [](int, bool, int32_t, int64_t) {});
               });
  }
};

template <bool kWide>
struct MaxPoolBackward : PoolArrays<kWide> {
  static constexpr int kChannels = PoolArrays<kWide>::kChannels;
  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, OnePhase::Shared&, OnePhase::Own&) const {
    const ImageWindows& w = this->windows;
    const auto sum_up = [&](const ImageWindows::Place& from, uint32_t c, float* sum) {
      w.ForHolders(from, [&](const ImageWindows::Place& to, int32_t i, int32_t j) {
        float best[kChannels] = {}, dy[kChannels];
        int32_t where[kChannels] = {};
        this->FindLargest(to, c, best, [&](int k, bool takes, int32_t place, int64_t) {
          where[k] = takes ? place : where[k];
        });
        this->Load(this->dy, w.To(to.image, to.y, to.x), c, dy);
        TESSERA_UNROLL for (int k = 0; k < kChannels; ++k) {
          sum[k] += where[k] == i * w.width + j ? dy[k] : 0.0f;
        }
      });
    };
    this->Make(lane, w.from_height, w.from_width, sum_up);
  }
};

// Where no place has two windows, into zeros: each window is searched once, not once for each of its places.
template <bool kWide>
struct MaxPoolScatter : PoolArrays<kWide> {
  static constexpr int kChannels = PoolArrays<kWide>::kChannels;
  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, OnePhase::Shared&, OnePhase::Own&) const {
    const ImageWindows& w = this->windows;
    const auto scatter = [&](const ImageWindows::Place& to, uint32_t c, int64_t) {
      float best[kChannels] = {}, dy[kChannels];
      int64_t where[kChannels] = {};
      this->FindLargest(to, c, best, [&](int k, bool takes, int32_t, int64_t place) {
        where[k] = takes ? place : where[k];
      });
      this->Load(this->dy, w.To(to.image, to.y, to.x), c, dy);
      TESSERA_UNROLL for (int k = 0; k < kChannels; ++k) {
        // A sum as well: of -0, 0.
        this->out[where[k] * w.channels + c + k] = 0.0f + dy[k];
      }
    };
    this->ForItem(lane, w.to_height, w.to_width, scatter);
  }
};

template <bool kWide>
struct AveragePool : PoolArrays<kWide> {
  static constexpr int kChannels = PoolArrays<kWide>::kChannels;
  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, OnePhase::Shared&, OnePhase::Own&) const {
    const ImageWindows& w = this->windows;
    const auto sum_up = [&](const ImageWindows::Place& to, uint32_t c, float* sum) {
      w.ForInside(to, [&](int32_t, int32_t, int64_t place) {
        float value[kChannels];
        this->Load(this->x, place, c, value);
        TESSERA_UNROLL for (int k = 0; k < kChannels; ++k) sum[k] += value[k];
      });
      TESSERA_UNROLL for (int k = 0; k < kChannels; ++k) sum[k] *= this->share;
    };
    this->Make(lane, w.to_height, w.to_width, sum_up);
  }
};

template <bool kWide>
struct AveragePoolBackward : PoolArrays<kWide> {
  static constexpr int kChannels = PoolArrays<kWide>::kChannels;
  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, OnePhase::Shared&, OnePhase::Own&) const {
    const ImageWindows& w = this->windows;
    const auto sum_up = [&](const ImageWindows::Place& from, uint32_t c, float* sum) {
      w.ForHolders(from, [&](const ImageWindows::Place& to, int32_t, int32_t) {
        float value[kChannels];
        this->Load(this->dy, w.To(to.image, to.y, to.x), c, value);
        TESSERA_UNROLL for (int k = 0; k < kChannels; ++k) sum[k] += this->share * value[k];
      });
    };
    this->Make(lane, w.from_height, w.from_width, sum_up);
  }
};

}  // namespace tessera::cuda

#endif  // TESSERA_KERNELS_CUDA_POOLING_KERNELS_H_
