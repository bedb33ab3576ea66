// What response_norm.cc runs: each thread has a channel of a place.
#ifndef TESSERA_KERNELS_CUDA_RESPONSE_NORM_KERNELS_H_
#define TESSERA_KERNELS_CUDA_RESPONSE_NORM_KERNELS_H_

#include <cmath>
#include <cstdint>

#include "kernels/cuda/tiles.h"
#include "kernels/power.h"

namespace tessera::cuda {

struct ResponseArrays : OnePhase {
  int64_t n;
  int64_t channels;
  int64_t front, behind;  // of a window's middle
  float share, k;         // alpha / size
  double beta;

  int64_t blocks() const { return CeilDiv(n, kThreads); }

 protected:
  // The sum of f(index of the value) over `front_of` channels in front of value i, itself, and `behind_of` behind it,
  // as far as its place has them.
  template <typename F>
  TESSERA_HOST_DEVICE float Sum(int64_t i, int64_t front_of, int64_t behind_of, const F& f) const {
    const int64_t c = i % channels;
    const int64_t begin = c < front_of ? i - c : i - front_of;
    const int64_t left = channels - 1 - c;
    const int64_t end = i + (left < behind_of ? left : behind_of);
    float sum = 0;
    for (int64_t at = begin; at <= end; ++at) sum += f(at);
    return sum;
  }
  struct Response {
    float s, power;  // s^-beta
  };
  TESSERA_HOST_DEVICE Response At(const float* x, int64_t i) const {
    const float s = k + share * Sum(i, front, behind, [x](int64_t at) { return x[at] * x[at]; });
    if (beta != 0.75) return {s, PowerOf(s, -beta)};
    const float root = std::sqrt(s);
    return {s, 1.0f / (root * std::sqrt(root))};
  }
};

struct ResponseForward : ResponseArrays {
  const float* x;
  float* y;
  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, OnePhase::Shared&, OnePhase::Own&) const {
    const int64_t i = lane.block * kThreads + lane.thread;
    if (i < n) y[i] = x[i] * At(x, i).power;
  }
};

// What each channel contributes to the gradients of those in its window.
struct ResponseTerms : ResponseArrays {
  const float* x;
  const float* dy;
  float* terms;
  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, OnePhase::Shared&, OnePhase::Own&) const {
    const int64_t i = lane.block * kThreads + lane.thread;
    if (i >= n) return;
    const Response at = At(x, i);
    terms[i] = dy[i] * x[i] * at.power / at.s;
  }
};

struct ResponseBackward : ResponseArrays {
  float slope;  // 2 alpha beta / size
  const float* x;
  const float* dy;
  const float* terms;
  float* dx;
  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, OnePhase::Shared&, OnePhase::Own&) const {
    const int64_t i = lane.block * kThreads + lane.thread;
    if (i >= n) return;
    // A channel is in the windows of those that have it in front of them and behind them.
    const float* const of = terms;
    const float sum = Sum(i, behind, front, [of](int64_t at) { return of[at]; });
    dx[i] = dy[i] * At(x, i).power - slope * x[i] * sum;
  }
};

}  // namespace tessera::cuda

#endif  // TESSERA_KERNELS_CUDA_RESPONSE_NORM_KERNELS_H_
