// The three shapes that most kernels have: element by element, a column at a time over all rows,
// and element by element with constants for each column.
#ifndef TESSERA_KERNELS_CUDA_TILES_H_
#define TESSERA_KERNELS_CUDA_TILES_H_

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/bf16.h"
#include "kernels/cuda/launch.h"

// Loads in flight hide the memory's latency; the host's compiler does as it likes.
#ifdef __CUDA_ARCH__
#define TESSERA_UNROLL _Pragma("unroll")
#define TESSERA_UNROLL_1 _Pragma("unroll 1")
#define TESSERA_UNROLL_4 _Pragma("unroll 4")
#define TESSERA_UNROLL_8 _Pragma("unroll 8")
#else
#define TESSERA_UNROLL
#define TESSERA_UNROLL_1
#define TESSERA_UNROLL_4
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

// Stores four values by an instruction of PTX: nvcc makes four stores of some, of which the memory takes a quarter of
// what it could.
template <typename T>
TESSERA_HOST_DEVICE void StoreWhole(const Four<T>& four, T* to) {
#ifdef __CUDA_ARCH__
  static_assert(sizeof(four) == 16 || sizeof(four) == 8);
  uint32_t words[sizeof(four) / 4];
  std::memcpy(words, &four, sizeof(four));
  const size_t address = __cvta_generic_to_global(to);
  if constexpr (sizeof(four) == 16) {
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(words[0]),
                 "r"(words[1]), "r"(words[2]), "r"(words[3])
                 : "memory");
  } else {
    asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(address), "r"(words[0]), "r"(words[1])
                 : "memory");
  }
#else
  *reinterpret_cast<Four<T>*>(to) = four;
#endif
}

template <typename T>
TESSERA_HOST_DEVICE void StoreFour(const T* from, bool aligned, T* to) {
  if (aligned) {
    Four<T> four;
    TESSERA_UNROLL for (int k = 0; k < 4; ++k) four.v[k] = from[k];
    StoreWhole(four, to);
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

  // How many groups of four elements a thread has. With one group of a single input too few bytes are in flight,
  // unless there is more to compute.
  static constexpr int kFours = Op::kIn == 1 && std::is_empty_v<typename Op::Common> ? 2 : 1;
  static constexpr int64_t kStride = 4 * OnePhase::kThreads;

  Elementwise(const Op& op, int64_t n) : op(op), n(n), aligned(true) {
    for (int a = 0; a < Op::kIn; ++a) aligned = aligned && HoldsFours(op.in[a]);
    for (int a = 0; a < Op::kOut; ++a) aligned = aligned && HoldsFours(op.out[a]);
    if constexpr (kRounds<Op>) aligned = aligned && HoldsFours(op.rounded);
  }
  int64_t blocks() const { return CeilDiv(n, kFours * kStride); }

  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, Shared&, Own&) const {
    const int64_t first = lane.block * kFours * kStride + 4 * lane.thread;
    typename Op::In from[kFours][Op::kIn][4];
    if constexpr (kFours > 1) {
      // Nothing lies between the loads, so that none is waited for before the next.
      if (aligned && first + (kFours - 1) * kStride + 4 <= n) {
        TESSERA_UNROLL for (int f = 0; f < kFours; ++f) {
          TESSERA_UNROLL for (int a = 0; a < Op::kIn; ++a) {
            LoadFour(op.in[a] + first + f * kStride, true, from[f][a]);
          }
        }
        TESSERA_UNROLL for (int f = 0; f < kFours; ++f) Whole<true>(first + f * kStride, from[f]);
        return;
      }
    }
    TESSERA_UNROLL for (int f = 0; f < kFours; ++f) {
      const int64_t i = first + f * kStride;
      if (i + 4 > n) continue;
      TESSERA_UNROLL for (int a = 0; a < Op::kIn; ++a) LoadFour(op.in[a] + i, aligned, from[f][a]);
    }
    TESSERA_UNROLL for (int f = 0; f < kFours; ++f) {
      const int64_t i = first + f * kStride;
      if (i + 4 <= n) {
        Whole<false>(i, from[f]);
      } else if (i < n) {
        Rest(i);
      }
    }
  }

 private:
  template <bool kAligned>
  TESSERA_HOST_DEVICE void Whole(int64_t i, const typename Op::In (&from)[Op::kIn][4]) const {
    const bool in_one = kAligned || aligned;
    const typename Op::Common common = op.Prepare(i);
    typename Op::Out to[Op::kOut][4];
    TESSERA_UNROLL for (int k = 0; k < 4; ++k) {
      typename Op::In v[Op::kIn];
      typename Op::Out r[Op::kOut];
      TESSERA_UNROLL for (int a = 0; a < Op::kIn; ++a) v[a] = from[a][k];
      op(i + k, k, common, v, r);
      TESSERA_UNROLL for (int a = 0; a < Op::kOut; ++a) to[a][k] = r[a];
    }
    TESSERA_UNROLL for (int a = 0; a < Op::kOut; ++a) StoreFour(to[a], in_one, op.out[a] + i);
    if constexpr (kRounds<Op>) {
      Bf16 rounded[4];
      TESSERA_UNROLL for (int k = 0; k < 4; ++k) rounded[k] = RoundToBf16(to[0][k]);
      StoreFour(rounded, in_one, op.rounded + i);
    }
  }

  // Does the last elements, three at most.
  TESSERA_HOST_DEVICE void Rest(int64_t i) const {
    const typename Op::Common common = op.Prepare(i);
    TESSERA_UNROLL for (int k = 0; k < 3; ++k) {
      if (i + k >= n) return;
      typename Op::In v[Op::kIn];
      typename Op::Out r[Op::kOut];
      for (int a = 0; a < Op::kIn; ++a) v[a] = op.in[a][i + k];
      op(i + k, k, common, v, r);
      for (int a = 0; a < Op::kOut; ++a) op.out[a][i + k] = r[a];
      if constexpr (kRounds<Op>) op.rounded[i + k] = RoundToBf16(r[0]);
    }
  }
};

// The base of an Op whose elements share nothing.
struct Alone {
  struct Common {};
  TESSERA_HOST_DEVICE Common Prepare(int64_t) const { return {}; }
};

// *to = sum, or *to += sum, rounded once.
TESSERA_HOST_DEVICE inline void StoreSum(double sum, bool adds, float* to) {
  *to = static_cast<float>(adds ? static_cast<double>(*to) + sum : sum);
}

// Calls f(i, value of each row) for a thread's entries of rows of a length: every kThreads-th, whose loads are kAtOnce
// ahead. i is told as the first of them and what it is behind that, so that the latter is known to the compiler.
// Calls then(false) after kTogether of them, but then(true) after the last of kAtOnce or of all. A row has fewer than
// 2^31.
template <int kThreads, int kAtOnce, int kTogether, typename F, typename Then, typename... Rows>
TESSERA_HOST_DEVICE void ForOwn(int64_t columns, int thread, const F& f, const Then& then,
                                const Rows*... rows) {
  static_assert(kAtOnce % kTogether == 0);
  constexpr int kRows = sizeof...(rows);
  const auto end = static_cast<int32_t>(columns);
  const float* const from[kRows] = {rows...};
  const auto some = [&](int32_t first, auto is_whole) {
    constexpr bool kWhole = decltype(is_whole)::value;
    const int32_t left = end - first;
    float v[kAtOnce][kRows];
    TESSERA_UNROLL for (int k = 0; k < kAtOnce; ++k) {
      TESSERA_UNROLL for (int row = 0; row < kRows; ++row) {
        v[k][row] = kWhole || k * kThreads < left ? from[row][first + k * kThreads] : 0.0f;
      }
    }
    TESSERA_UNROLL for (int k = 0; k < kAtOnce; ++k) {
      if (!kWhole && k * kThreads >= left) continue;
      if constexpr (kRows == 1) f(first, k * kThreads, v[k][0]);
      if constexpr (kRows == 2) f(first, k * kThreads, v[k][0], v[k][1]);
      if (k % kTogether == kTogether - 1 && k + 1 < kAtOnce) then(false);
    }
    then(true);
  };
  constexpr int32_t kStep = kAtOnce * kThreads;
  int32_t first = thread;
  for (; end - first > kStep - kThreads; first += kStep) some(first, std::true_type());
  if (first < end) some(first, std::false_type());
}

// How the rows of a matrix are cut among blocks for sums over columns: by its shape alone, so that
// sums have the same bits on every GPU.
struct ColumnCut {
  static constexpr int kWidth = 32;     // columns of a block
  static constexpr int kRowsMin = 64;   // of a block, so that the second pass is short
  static constexpr int kResident = 6;   // blocks that a multiprocessor has room for
  static constexpr int kAtOnce = 768;   // blocks, of an H100
  static constexpr int kRoundsMax = 8;  // of so many blocks

  int64_t tiles;  // of columns
  int64_t parts;  // of rows
  int64_t part_rows;

  static ColumnCut Of(int64_t rows, int64_t columns) {
    ColumnCut cut;
    cut.tiles = CeilDiv(columns, kWidth);
    cut.parts = 1;
    // The cut with as few rounds as there can be, and the last of them as full.
    double best = 0;
    for (int64_t rounds = 1; cut.tiles > 0 && rounds <= kRoundsMax; ++rounds) {
      const int64_t by_blocks = kAtOnce * rounds / cut.tiles, by_rows = rows / kRowsMin;
      const int64_t parts = by_blocks < by_rows ? by_blocks : by_rows;
      if (parts < 1) continue;
      const int64_t blocks = cut.tiles * parts;
      const double full = static_cast<double>(blocks) / (CeilDiv(blocks, kAtOnce) * kAtOnce);
      if (full < best + 0.05) continue;
      best = full;
      cut.parts = parts;
    }
    cut.part_rows = CeilDiv(rows, cut.parts);
    if (cut.part_rows > 0) cut.parts = CeilDiv(rows, cut.part_rows);
    return cut;
  }
  int64_t blocks() const { return tiles * parts; }
};

// Whether an Op loads by column and row, LoadAt(column, row, element, values), which saves it divisions. It reads more
// than its kIn values, so that fewer rows are in flight.
template <typename Op, typename = void>
struct HasLoadAt : std::false_type {};
template <typename Op>
struct HasLoadAt<Op, std::void_t<decltype(&Op::LoadAt)>> : std::true_type {};

// First pass: partial[(part * kSums + s) * columns + c] = the sums of Op over a part of the rows of
// column c, in f64. An Op has
//   static constexpr int kSums, kIn;  using Column;
//   Column At(int64_t c) const                                      what a column's elements share
//   void Load(int64_t i, float* v) const                            kIn values: element i of row-major matrices
//   void Add(const Column&, const float* v, double* sums) const
//   void Finish(int64_t c, const double* sums) const
template <typename Op>
struct ColumnSums {
  static constexpr int kLanes = 8;  // rows side by side
  static constexpr int kThreads = ColumnCut::kWidth * kLanes;
  static constexpr int kResident = ColumnCut::kResident;
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
      const int64_t first = part * cut.part_rows + y;
      const int64_t limit = (part + 1) * cut.part_rows;
      // No memory holds parts of 2^31 rows.
      auto left = static_cast<int32_t>((limit < rows ? limit : rows) - first);
      int64_t row = first;
      int64_t i = first * columns + c;
      for (; left > (kAtOnce - 1) * kLanes; left -= kAtOnce * kLanes) {
        AddRows<true>(column, left, row, i, sums);
        row += kAtOnce * kLanes;
        i += kAtOnce * kLanes * columns;
      }
      if (left > 0) AddRows<false>(column, left, row, i, sums);
      TESSERA_UNROLL for (int s = 0; s < Op::kSums; ++s) shared.sums[s][y][x] = sums[s];
    } else {
      if (y >= Op::kSums) return;
      double sum = 0;
      for (int lanes = 0; lanes < kLanes; ++lanes) sum += shared.sums[y][lanes][x];
      partial[(part * Op::kSums + y) * columns + c] = sum;
    }
  }

 private:
  // Rows whose loads are in flight together: a dozen loads, and no more registers than kResident blocks have.
  static constexpr int kAtOnce = Op::kIn == 1 ? 8 : HasLoadAt<Op>::value ? 2 : 4;

  // A thread's next kAtOnce rows, or (kWhole is false) as many of them as are left.
  template <bool kWhole>
  TESSERA_HOST_DEVICE void AddRows(const typename Op::Column& column, int32_t left, int64_t row,
                                   int64_t i, double* sums) const {
    float v[kAtOnce][Op::kIn];
    TESSERA_UNROLL for (int k = 0; k < kAtOnce; ++k) {
      if (!kWhole && k * kLanes >= left) continue;
      if constexpr (HasLoadAt<Op>::value) {
        op.LoadAt(column, row + k * kLanes, i + k * kLanes * columns, v[k]);
      } else {
        op.Load(i + k * kLanes * columns, v[k]);
      }
    }
    TESSERA_UNROLL for (int k = 0; k < kAtOnce; ++k) {
      if (kWhole || k * kLanes < left) op.Add(column, v[k], sums);
    }
  }
};

// Second pass: the sums of the parts, side by side like the rows before.
template <typename Op>
struct ColumnFinish {
  static constexpr int kLanes = 8;
  static constexpr int kThreads = ColumnCut::kWidth * kLanes;
  static constexpr int kPhases = 2;
  struct Shared {
    double sums[Op::kSums][kLanes][ColumnCut::kWidth];
  };
  struct Own {};
  static constexpr bool Reduces(int) { return false; }

  Op op;
  int64_t columns, parts;
  const double* partial;

  int64_t blocks() const { return CeilDiv(columns, ColumnCut::kWidth); }

  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, Shared& shared, Own&) const {
    const int x = lane.thread % ColumnCut::kWidth, y = lane.thread / ColumnCut::kWidth;
    const int64_t c = lane.block * ColumnCut::kWidth + x;
    if (c >= columns) return;
    double sums[Op::kSums] = {};
    if constexpr (phase == 0) {
      auto left = static_cast<int32_t>(parts) - y;
      const double* from = partial + y * Op::kSums * columns + c;
      for (; left > (kAtOnce - 1) * kLanes; left -= kAtOnce * kLanes) {
        AddParts<true>(left, from, sums);
        from += kAtOnce * kLanes * Op::kSums * columns;
      }
      if (left > 0) AddParts<false>(left, from, sums);
      TESSERA_UNROLL for (int s = 0; s < Op::kSums; ++s) shared.sums[s][y][x] = sums[s];
    } else {
      if (y > 0) return;
      TESSERA_UNROLL for (int s = 0; s < Op::kSums; ++s) {
        for (int lanes = 0; lanes < kLanes; ++lanes) sums[s] += shared.sums[s][lanes][x];
      }
      op.Finish(c, sums);
    }
  }

 private:
  static constexpr int kAtOnce =
      8;  // parts whose loads are in flight together: few blocks have all of them

  // A thread's next kAtOnce parts, or as many of them as are left.
  template <bool kWhole>
  TESSERA_HOST_DEVICE void AddParts(int32_t left, const double* from, double* sums) const {
    double v[kAtOnce][Op::kSums];
    TESSERA_UNROLL for (int k = 0; k < kAtOnce; ++k) {
      TESSERA_UNROLL for (int s = 0; s < Op::kSums; ++s) {
        if (kWhole || k * kLanes < left) v[k][s] = from[(k * kLanes * Op::kSums + s) * columns];
      }
    }
    TESSERA_UNROLL for (int k = 0; k < kAtOnce; ++k) {
      TESSERA_UNROLL for (int s = 0; s < Op::kSums; ++s) {
        if (kWhole || k * kLanes < left) sums[s] += v[k][s];
      }
    }
  }
};

// out[r][c] from the same element of each input and constants of column c. An Op has
//   static constexpr int kIn;  const float* in[kIn];  float* out;
//   using Column;  Column At(int64_t c) const;  float operator()(const Column&, const float* v) const
// A thread keeps the constants of its columns for several rows. kWide: four columns, which wants
// rows that begin at multiples of 16 bytes. Where there are few columns, a warp has several rows side by side.
template <typename Op, bool kWide>
struct ColumnMap : OnePhase {
  static constexpr int kColumns = kWide ? 4 : 1;  // of a thread
  static constexpr int kRows = 8;                 // of a thread
  static constexpr int kResident = kWide && Op::kIn == 1 ? 5 : 0;

  Op op;
  int64_t rows, columns;
  int lane_bits;  // 2 to the power of it: threads side by side in a row

  ColumnMap(const Op& op, int64_t rows, int64_t columns)
      : op(op), rows(rows), columns(columns), lane_bits(0) {
    while (lane_bits < 5 && block_columns() < columns) ++lane_bits;
  }
  int64_t blocks() const { return CeilDiv(columns, block_columns()) * CeilDiv(rows, block_rows()); }

  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, Shared&, Own&) const {
    const int lanes = 1 << lane_bits;
    const int64_t tiles = CeilDiv(columns, block_columns());
    const int64_t c = lane.block % tiles * block_columns() + (lane.thread & (lanes - 1)) * kColumns;
    if (c >= columns) return;
    typename Op::Column column[kColumns];
    TESSERA_UNROLL for (int k = 0; k < kColumns; ++k) column[k] = op.At(c + k);
    const int64_t first = lane.block / tiles * block_rows() + (lane.thread >> lane_bits);
    const int left = rows - first < block_rows() ? static_cast<int>(rows - first) : block_rows();
    int64_t i = first * columns + c;
    TESSERA_UNROLL for (int step = 0; step < kRows; step += kAtOnce) {
      float from[kAtOnce][kIn][4];
      TESSERA_UNROLL for (int k = 0; k < kAtOnce; ++k) {
        if ((step + k) * row_lanes() < left) Load(i + k * row_lanes() * columns, from[k]);
      }
      TESSERA_UNROLL for (int k = 0; k < kAtOnce; ++k) {
        if ((step + k) * row_lanes() < left) Map(column, from[k], i + k * row_lanes() * columns);
      }
      i += kAtOnce * row_lanes() * columns;
    }
  }

 private:
  static constexpr int kIn = Op::kIn == 0 ? 1 : Op::kIn;
  static constexpr int kAtOnce =
      kIn == 1 || !kWide ? 4 : 1;  // rows whose loads are in flight together

  TESSERA_HOST_DEVICE int64_t block_columns() const { return int64_t{kColumns} << lane_bits; }
  TESSERA_HOST_DEVICE int row_lanes() const { return OnePhase::kThreads >> lane_bits; }
  TESSERA_HOST_DEVICE int block_rows() const { return kRows * row_lanes(); }

  TESSERA_HOST_DEVICE void Load(int64_t i, float (&from)[kIn][4]) const {
    TESSERA_UNROLL for (int a = 0; a < Op::kIn; ++a) {
      if constexpr (kWide) {
        LoadFour(op.in[a] + i, true, from[a]);
      } else {
        from[a][0] = op.in[a][i];
      }
    }
  }

  TESSERA_HOST_DEVICE void Map(const typename Op::Column* column, const float (&from)[kIn][4],
                               int64_t i) const {
    float to[4];
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
