// The int8 codec where rows are longer than a tile and still fit a block's registers.
#ifndef TESSERA_KERNELS_CUDA_CODEC_ROW_CODE_KERNELS_H_
#define TESSERA_KERNELS_CUDA_CODEC_ROW_CODE_KERNELS_H_

#include <cstdint>

#include "common/codec/bucket_scale.h"
#include "kernels/cuda/codec/bucket_kernels.h"

namespace tessera::cuda {

// A block for each row: its entries are read once, and stay with their threads, four of every 1024
// with each, between the largest magnitude and the codes. Reads 4 bytes an entry and writes one; with
// a residual it reads 8 and writes 5.
//   phase 0  the largest magnitude     1  codes, and what is held back
template <int kSteps>
struct EncodeRows {
  static constexpr int kThreads = 256;
  static constexpr int kPhases = 2;
  static constexpr bool Reduces(int phase) { return phase == 0; }
  static constexpr int64_t kEntriesMax = int64_t{4} * kThreads * kSteps;
  using Value = ScaleBuckets::Value;
  struct Shared {
    Value total;
  };
  struct Own {
    Value value;
    float v[kSteps][4];
  };
  BucketGrid grid;  // of buckets that are whole rows, with 8 bits an entry
  const float* entries;
  float* residual;  // null: nothing is held back
  char* out;

  TESSERA_HOST_DEVICE static Value Combine(const Value& a, const Value& b) {
    return ScaleBuckets::Combine(a, b);
  }

  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, Shared& shared, Own& own) const {
    const BucketGrid::Bucket row = grid.At(lane.block);
    if constexpr (phase == 0) {
      own.value = {0};
      if (residual == nullptr) {
        Take<false>(lane, row, own);
      } else {
        Take<true>(lane, row, own);
      }
    } else {
      const BucketScale scale = BucketScaleOf(true, grid.divisor, shared.total.largest, -1.0);
      if (lane.thread == 0) PutFloat(scale.header, out + row.byte);
      TESSERA_UNROLL for (int step = 0; step < kSteps; ++step) {
        const int64_t i = Place(lane.thread, step);
        if (i < row.size) Code(row, i, scale, own.v[step]);
      }
    }
  }

 private:
  TESSERA_HOST_DEVICE static int64_t Place(int thread, int step) {
    return 4 * (int64_t{step} * kThreads + thread);
  }

  // A thread's entries of the row, or (kHeld) their sums with what is held back, and the largest magnitude of them.
  template <bool kHeld>
  TESSERA_HOST_DEVICE void Take(const Lane& lane, const BucketGrid::Bucket& row, Own& own) const {
    constexpr int kAtOnce = 2;  // steps whose loads are in flight together
    const bool aligned =
        IsMultiple(entries + row.begin, 16) && (!kHeld || IsMultiple(residual + row.begin, 16));
    TESSERA_UNROLL for (int first = 0; first < kSteps; first += kAtOnce) {
      float held[kAtOnce][4];
      if (aligned && Place(lane.thread, first + kAtOnce - 1) + 4 <= row.size) {
        TESSERA_UNROLL for (int k = 0; k < kAtOnce; ++k) {
          const int64_t i = row.begin + Place(lane.thread, first + k);
          LoadFour(entries + i, true, own.v[first + k]);
          if constexpr (kHeld) LoadFour(residual + i, true, held[k]);
        }
      } else {
        TESSERA_UNROLL for (int k = 0; k < kAtOnce; ++k) {
          const int64_t i = Place(lane.thread, first + k);
          Load(entries, row, i, own.v[first + k]);
          if constexpr (kHeld) Load(residual, row, i, held[k]);
        }
      }
      TESSERA_UNROLL for (int k = 0; k < kAtOnce; ++k) {
        float* const v = own.v[first + k];
        TESSERA_UNROLL for (int j = 0; j < 4; ++j) {
          if constexpr (kHeld) v[j] = held[k][j] + v[j];
          own.value = Combine(own.value, {MagnitudeBits(v[j])});
        }
      }
    }
  }

  // One at a time, and zeros where the row is over.
  TESSERA_HOST_DEVICE static void Load(const float* from, const BucketGrid::Bucket& row, int64_t i,
                                       float* to) {
    const float* const at = from + row.begin + i;
    TESSERA_UNROLL for (int k = 0; k < 4; ++k) to[k] = i + k < row.size ? at[k] : 0.0f;
  }

  TESSERA_HOST_DEVICE void Code(const BucketGrid::Bucket& row, int64_t i, const BucketScale& scale,
                                const float* v) const {
    const int count = row.size - i < 4 ? static_cast<int>(row.size - i) : 4;
    uint64_t packed = 0;
    float lost[4];
    TESSERA_UNROLL for (int k = 0; k < 4; ++k) {
      const int8_t code = scale.inverse == 0 ? int8_t{0} : NearestCode(v[k], scale.inverse);
      packed |= static_cast<uint64_t>(static_cast<uint8_t>(code)) << 8 * k;
      lost[k] = v[k] - (scale.inverse == 0 ? UncodedEntry(scale)
                                           : static_cast<float>(code) * scale.factor);
    }
    PutBytes(packed, count, out + row.byte + 4 + i);
    if (residual == nullptr) return;
    float* const to = residual + row.begin + i;
    if (count == 4) return StoreFour(lost, IsMultiple(to, 16), to);
    TESSERA_UNROLL for (int k = 0; k < 4; ++k) {
      if (k < count) to[k] = lost[k];
    }
  }
};

}  // namespace tessera::cuda

#endif  // TESSERA_KERNELS_CUDA_CODEC_ROW_CODE_KERNELS_H_
