// The three shapes that most kernels have: element by element, a column at a time over all rows,
// and element by element with constants for each column.
#ifndef TESSERA_KERNELS_CUDA_TILES_H_
#define TESSERA_KERNELS_CUDA_TILES_H_

#include <cstdint>
#include <type_traits>

#include "kernels/bf16.h"
#include "kernels/cuda/launch.h"

// Loads in flight hide the memory's latency; the host's compiler does as it likes.
#ifdef __CUDA_ARCH__
#define TESSERA_UNROLL _Pragma("unroll")
#define TESSERA_UNROLL_8 _Pragma("unroll 8")
#else
#define TESSERA_UNROLL
#define TESSERA_UNROLL_8
#endif

namespace tessera::cuda {

// Four values that the GPU moves in one access where their address is a multiple of their size.
template <typename T>
struct alignas(4 * sizeof(T)) Four {
  T v[4];
};

template <typename T>
bool HoldsFours(const T* address) {
  return reinterpret_cast<uintptr_t>(address) % sizeof(Four<T>) == 0;
}

template <typename T>
TESSERA_HOST_DEVICE void LoadFour(const T* from, bool aligned, T* to) {
  if (aligned) {
    const Four<T> four = *reinterpret_cast<const Four<T>*>(from);
    TESSERA_UNROLL for (int k = 0; k < 4; ++k) to[k] = four.v[k];
  } else {
    TESSERA_UNROLL for (int k = 0; k < 4; ++k) to[k] = from[k];
  }
}

template <typename T>
TESSERA_HOST_DEVICE void StoreFour(const T* from, bool aligned, T* to) {
  if (aligned) {
    Four<T> four;
    TESSERA_UNROLL for (int k = 0; k < 4; ++k) four.v[k] = from[k];
    *reinterpret_cast<Four<T>*>(to) = four;
  } else {
    TESSERA_UNROLL for (int k = 0; k < 4; ++k) to[k] = from[k];
  }
}

// An Op whose first output is written a second time, rounded.
template <typename Op>
struct RoundsToo : Op {
  Bf16* rounded;
};
template <typename Op>
constexpr bool kRounds = false;
template <typename Op>
constexpr bool kRounds<RoundsToo<Op>> = true;

// Element i of each output from element i of each input; an output may be an input. An Op has
//   using In, Out;  static constexpr int kIn, kOut;
//   const In* in[kIn];  Out* out[kOut];
//   void operator()(int64_t i, int k, const Common&, const In* v, Out* r) const
//   using Common;  Common Prepare(int64_t i) const     what four elements from i share
template <typename Op>
struct Elementwise : OnePhase {
  Op op;
  int64_t n;
  bool aligned;

  Elementwise(const Op& op, int64_t n) : op(op), n(n), aligned(true) {
    for (int a = 0; a < Op::kIn; ++a) aligned = aligned && HoldsFours(op.in[a]);
    for (int a = 0; a < Op::kOut; ++a) aligned = aligned && HoldsFours(op.out[a]);
    if constexpr (kRounds<Op>) aligned = aligned && HoldsFours(op.rounded);
  }
  int64_t blocks() const { return CeilDiv(n, 4 * kThreads); }

  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, Shared&, Own&) const {
    const int64_t i = 4 * (lane.block * kThreads + lane.thread);
    if (i >= n) return;
    const typename Op::Common common = op.Prepare(i);
    if (i + 4 > n) {
      for (int k = 0; i + k < n; ++k) {
        typename Op::In v[Op::kIn];
        typename Op::Out r[Op::kOut];
        for (int a = 0; a < Op::kIn; ++a) v[a] = op.in[a][i + k];
        op(i + k, k, common, v, r);
        for (int a = 0; a < Op::kOut; ++a) op.out[a][i + k] = r[a];
        if constexpr (kRounds<Op>) op.rounded[i + k] = RoundToBf16(r[0]);
      }
      return;
    }
    typename Op::In from[Op::kIn][4];
    typename Op::Out to[Op::kOut][4];
    TESSERA_UNROLL for (int a = 0; a < Op::kIn; ++a) LoadFour(op.in[a] + i, aligned, from[a]);
    TESSERA_UNROLL for (int k = 0; k < 4; ++k) {
      typename Op::In v[Op::kIn];
      typename Op::Out r[Op::kOut];
      TESSERA_UNROLL for (int a = 0; a < Op::kIn; ++a) v[a] = from[a][k];
      op(i + k, k, common, v, r);
      TESSERA_UNROLL for (int a = 0; a < Op::kOut; ++a) to[a][k] = r[a];
    }
    TESSERA_UNROLL for (int a = 0; a < Op::kOut; ++a) StoreFour(to[a], aligned, op.out[a] + i);
    if constexpr (kRounds<Op>) {
      Bf16 rounded[4];
      TESSERA_UNROLL for (int k = 0; k < 4; ++k) rounded[k] = RoundToBf16(to[0][k]);
      StoreFour(rounded, aligned, op.rounded + i);
    }
  }
};

// For an Op whose elements share nothing.
struct Alone {
  struct Common {};
  TESSERA_HOST_DEVICE Common Prepare(int64_t) const { return {}; }
};

// *to = sum, or *to += sum, rounded once.
TESSERA_HOST_DEVICE inline void StoreSum(double sum, bool adds, float* to) {
  *to = static_cast<float>(adds ? static_cast<double>(*to) + sum : sum);
}

// How the rows of a matrix are cut among blocks for sums over columns: by its shape alone, so that
// sums have the same bits on every GPU.
struct ColumnCut {
  static constexpr int kWidth = 32;           // columns of a block
  static constexpr int kRowsMin = 64;         // of a block, so that the second pass is short
  static constexpr int kBlocksWanted = 1024;  // keeps the largest GPU busy

  int64_t tiles;  // of columns
  int64_t parts;  // of rows
  int64_t part_rows;

  static ColumnCut Of(int64_t rows, int64_t columns) {
    ColumnCut cut;
    cut.tiles = CeilDiv(columns, kWidth);
    const int64_t wanted = cut.tiles == 0 ? 1 : CeilDiv(kBlocksWanted, cut.tiles);
    const int64_t most = rows < kRowsMin ? 1 : rows / kRowsMin;
    cut.part_rows = CeilDiv(rows, wanted < most ? wanted : most);
    cut.parts = cut.part_rows == 0 ? 1 : CeilDiv(rows, cut.part_rows);
    return cut;
  }
  int64_t blocks() const { return tiles * parts; }
};

// First pass: partial[(part * kSums + s) * columns + c] = the sums of Op over a part of the rows of
// column c, in f64. An Op has
//   static constexpr int kSums;  using Column;
//   Column At(int64_t c) const                                  what a column's elements share
//   void Add(const Column&, int64_t i, double* sums) const      element i of the row-major matrix
//   void Finish(int64_t c, const double* sums) const
template <typename Op>
struct ColumnSums {
  static constexpr int kLanes = 8;  // rows side by side
  static constexpr int kThreads = ColumnCut::kWidth * kLanes;
  static constexpr int kPhases = 2;
  struct Shared {
    double sums[Op::kSums][kLanes][ColumnCut::kWidth];
  };
  struct Own {};
  static constexpr bool Reduces(int) { return false; }

  Op op;
  int64_t rows, columns;
  ColumnCut cut;
  double* partial;

  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, Shared& shared, Own&) const {
    const int x = lane.thread % ColumnCut::kWidth, y = lane.thread / ColumnCut::kWidth;
    const int64_t c = lane.block % cut.tiles * ColumnCut::kWidth + x;
    const int64_t part = lane.block / cut.tiles;
    if (c >= columns) return;
    if constexpr (phase == 0) {
      double sums[Op::kSums] = {};
      const typename Op::Column column = op.At(c);
      const int64_t limit = (part + 1) * cut.part_rows;
      const int64_t end = limit < rows ? limit : rows;
      TESSERA_UNROLL_8 for (int64_t row = part * cut.part_rows + y; row < end; row += kLanes) {
        op.Add(column, row * columns + c, sums);
      }
      TESSERA_UNROLL for (int s = 0; s < Op::kSums; ++s) shared.sums[s][y][x] = sums[s];
    } else {
      if (y >= Op::kSums) return;
      double sum = 0;
      for (int lanes = 0; lanes < kLanes; ++lanes) sum += shared.sums[y][lanes][x];
      partial[(part * Op::kSums + y) * columns + c] = sum;
    }
  }
};

// Second pass: the parts in their order.
template <typename Op>
struct ColumnFinish : OnePhase {
  Op op;
  int64_t columns, parts;
  const double* partial;

  int64_t blocks() const { return CeilDiv(columns, kThreads); }

  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, Shared&, Own&) const {
    const int64_t c = lane.block * kThreads + lane.thread;
    if (c >= columns) return;
    double sums[Op::kSums] = {};
    for (int64_t part = 0; part < parts; ++part) {
      TESSERA_UNROLL for (int s = 0; s < Op::kSums; ++s) {
        sums[s] += partial[(part * Op::kSums + s) * columns + c];
      }
    }
    op.Finish(c, sums);
  }
};

// out[r][c] from the same element of each input and constants of column c. An Op has
//   static constexpr int kIn;  const float* in[kIn];  float* out;
//   using Column;  Column At(int64_t c) const;  float operator()(const Column&, const float* v) const
// A thread keeps the constants of its columns for several rows. kWide: four columns, which wants
// rows that begin at multiples of 16 bytes.
template <typename Op, bool kWide>
struct ColumnMap : OnePhase {
  static constexpr int kColumns = kWide ? 4 : 1;  // of a thread
  static constexpr int kRows = 8;                 // of a thread
  static constexpr int kLanes = 32;
  static constexpr int64_t kBlockRows = kRows * (kThreads / kLanes);
  static constexpr int64_t kBlockColumns = kLanes * kColumns;

  Op op;
  int64_t rows, columns;

  int64_t blocks() const { return CeilDiv(columns, kBlockColumns) * CeilDiv(rows, kBlockRows); }

  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, Shared&, Own&) const {
    const int64_t tiles = CeilDiv(columns, kBlockColumns);
    const int64_t c = lane.block % tiles * kBlockColumns + lane.thread % kLanes * kColumns;
    if (c >= columns) return;
    typename Op::Column column[kColumns];
    TESSERA_UNROLL for (int k = 0; k < kColumns; ++k) column[k] = op.At(c + k);
    const int64_t first = lane.block / tiles * kBlockRows + lane.thread / kLanes;
    TESSERA_UNROLL for (int step = 0; step < kRows; ++step) {
      const int64_t row = first + step * (kThreads / kLanes);
      if (row < rows) Map(column, row * columns + c);
    }
  }

 private:
  TESSERA_HOST_DEVICE void Map(const typename Op::Column* column, int64_t i) const {
    constexpr int kIn = Op::kIn == 0 ? 1 : Op::kIn;
    float from[kIn][4];
    float to[4];
    TESSERA_UNROLL for (int a = 0; a < Op::kIn; ++a) {
      if constexpr (kWide) {
        LoadFour(op.in[a] + i, true, from[a]);
      } else {
        from[a][0] = op.in[a][i];
      }
    }
    TESSERA_UNROLL for (int k = 0; k < kColumns; ++k) {
      float v[kIn];
      TESSERA_UNROLL for (int a = 0; a < Op::kIn; ++a) v[a] = from[a][k];
      to[k] = op(column[k], v);
    }
    if constexpr (kWide) {
      StoreFour(to, true, op.out + i);
    } else {
      op.out[i] = to[0];
    }
  }
};

}  // namespace tessera::cuda

#endif  // TESSERA_KERNELS_CUDA_TILES_H_
