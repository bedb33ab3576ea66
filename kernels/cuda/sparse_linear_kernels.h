// What sparse_linear.cc runs. A panel holds the columns that occur in a batch, transposed: value
// [p, o] is of column columns[p] and output o, so that neighbouring threads, which have
// neighbouring outputs, read neighbouring values.
#ifndef TESSERA_KERNELS_CUDA_SPARSE_LINEAR_KERNELS_H_
#define TESSERA_KERNELS_CUDA_SPARSE_LINEAR_KERNELS_H_

#include <cstdint>

#include "kernels/cuda/tiles.h"

namespace tessera::cuda {

// Squares of 32 columns and 32 outputs, turned over in shared memory, so that both sides are read
// and written along their rows.
struct PanelTile {
  static constexpr int kSide = 32;
  static constexpr int kLanes = 8;
  static constexpr int kThreads = kSide * kLanes;
  static constexpr int kPhases = 2;
  static constexpr bool Reduces(int) { return false; }
  struct Shared {
    float square[kSide][kSide + 1];  // [output][column]; one more, against bank conflicts
  };
  struct Own {};

  const int32_t* columns;
  int64_t present, inputs, outputs;

  int64_t blocks() const { return CeilDiv(present, kSide) * CeilDiv(outputs, kSide); }

 protected:
  TESSERA_HOST_DEVICE int64_t FirstColumn(const Lane& lane) const {
    return lane.block % CeilDiv(present, kSide) * kSide;
  }
  TESSERA_HOST_DEVICE int64_t FirstOutput(const Lane& lane) const {
    return lane.block / CeilDiv(present, kSide) * kSide;
  }
  static constexpr int kSteps = kSide / kLanes;
  // Calls f(step, place in w, place in the square) with neighbouring threads along columns.
  template <typename F>
  TESSERA_HOST_DEVICE void AlongColumns(const Lane& lane, Shared& shared, const F& f) const {
    const int x = lane.thread % kSide;
    const int64_t p = FirstColumn(lane) + x, first = FirstOutput(lane);
    if (p >= present) return;
    const int64_t column = columns[p];
    TESSERA_UNROLL for (int step = 0; step < kSteps; ++step) {
      const int y = lane.thread / kSide + step * kLanes;
      if (first + y < outputs) f(step, (first + y) * inputs + column, shared.square[y][x]);
    }
  }
  // Like AlongColumns, behind loads of w: all are in flight together. Calls f(place in w, value there, place in
  // the square).
  template <typename F>
  TESSERA_HOST_DEVICE void AlongColumnsOf(const float* w, const Lane& lane, Shared& shared,
                                          const F& f) const {
    float v[kSteps];
    AlongColumns(lane, shared, [&](int step, int64_t i, float&) { v[step] = w[i]; });
    AlongColumns(lane, shared, [&](int step, int64_t i, float& place) { f(i, v[step], place); });
  }
  // Calls f(p, o, place in the square) with neighbouring threads along outputs.
  template <typename F>
  TESSERA_HOST_DEVICE void AlongOutputs(const Lane& lane, Shared& shared, const F& f) const {
    const int x = lane.thread % kSide;
    const int64_t o = FirstOutput(lane) + x, first = FirstColumn(lane);
    TESSERA_UNROLL for (int step = 0; step < kSteps; ++step) {
      const int y = lane.thread / kSide + step * kLanes;
      if (first + y < present && o < outputs) f(first + y, o, shared.square[x][y]);
    }
  }
};

// panel[p, o] = w[o, columns[p]].
struct GatherColumns : PanelTile {
  const float* w;
  float* panel;
  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, Shared& shared, Own&) const {
    const GatherColumns& k = *this;
    if constexpr (phase == 0) {
      AlongColumnsOf(w, lane, shared, [](int64_t, float value, float& place) { place = value; });
    } else {
      AlongOutputs(lane, shared, [&k](int64_t p, int64_t o, float& place) {
        k.panel[p * k.outputs + o] = place;
      });
    }
  }
};

// w[o, columns[p]] = panel[p, o], or += a panel[p, o].
template <bool kAdds>
struct ScatterColumns : PanelTile {
  const float* panel;
  float a;
  float* w;
  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, Shared& shared, Own&) const {
    const ScatterColumns& k = *this;
    if constexpr (phase == 0) {
      AlongOutputs(lane, shared, [&k](int64_t p, int64_t o, float& place) {
        place = k.panel[p * k.outputs + o];
      });
    } else if constexpr (kAdds) {
      AlongColumnsOf(w, lane, shared,
                     [&k](int64_t i, float value, float& place) { k.w[i] = value + k.a * place; });
    } else {
      AlongColumns(lane, shared, [&k](int, int64_t i, float& place) { k.w[i] = place; });
    }
  }
};

// w[o, columns[p]] = 0.
struct ClearColumns : OnePhase {
  const int32_t* columns;
  int64_t present, inputs, outputs;
  float* w;
  int64_t blocks() const { return CeilDiv(present * outputs, kThreads); }
  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, Shared&, Own&) const {
    const int64_t i = lane.block * kThreads + lane.thread;
    if (i < present * outputs) w[i / present * inputs + columns[i % present]] = 0.0f;
  }
};

// out[r, o] = initial[o] + the sum of value[e] panel[place[e], o] over the entries e of run r,
// [begin[r] - begin[0], begin[r + 1] - begin[0]), in their order.
struct SumRuns : OnePhase {
  int64_t runs, outputs;
  const int64_t* begin;
  const int32_t* place;
  const float* value;
  const float* panel;
  int64_t panel_stride;
  const float* initial;  // null: 0
  float* out;
  int64_t out_stride;

  int64_t blocks() const { return CeilDiv(runs * outputs, kThreads); }

  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, Shared&, Own&) const {
    const int64_t i = lane.block * kThreads + lane.thread;
    if (i >= runs * outputs) return;
    const int64_t run = i / outputs, o = i % outputs;
    const int64_t end = begin[run + 1] - begin[0];
    float sum = initial == nullptr ? 0.0f : initial[o];
    TESSERA_UNROLL_8 for (int64_t e = begin[run] - begin[0]; e < end; ++e) {
      sum += value[e] * panel[place[e] * panel_stride + o];
    }
    out[run * out_stride + o] = sum;
  }
};

}  // namespace tessera::cuda

#endif  // TESSERA_KERNELS_CUDA_SPARSE_LINEAR_KERNELS_H_
