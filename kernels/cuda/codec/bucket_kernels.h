// Codecs whose buckets have headers, bit for bit what common/codec/int8.cc and qsgd.cc make. kRandom: entries are
// rounded at random, as qsgd's are, else to the nearest code, as int8's are.
#ifndef TESSERA_KERNELS_CUDA_CODEC_BUCKET_KERNELS_H_
#define TESSERA_KERNELS_CUDA_CODEC_BUCKET_KERNELS_H_

#include <cstdint>

#include "common/codec/bucket_scale.h"
#include "common/codec/stochastic_entry.h"
#include "kernels/cuda/codec/bytes.h"
#include "kernels/cuda/tiles.h"

namespace tessera::cuda {

// Where the buckets of a segment are (common/codec/segment.h), and the tiles that blocks take.
struct BucketGrid {
  static constexpr int kThreads = 64;
  static constexpr int kOwn = 8;  // entries of a thread
  static constexpr int kTile = kOwn * kThreads;

  int64_t entries, row, bucket;
  int64_t row_buckets, row_bytes;  // of a whole row
  int64_t bucket_bytes;            // of a whole bucket
  int64_t buckets;
  int64_t first_bucket;
  int bits;
  float divisor;

  struct Bucket {
    int64_t number;  // in the segment
    int64_t begin;   // its first entry
    int64_t size;
    int64_t byte;
  };
  TESSERA_HOST_DEVICE Bucket At(int64_t number) const {
    const int64_t r = number / row_buckets, k = number % row_buckets;
    Bucket at = {number, r * row + k * bucket, bucket, r * row_bytes + k * bucket_bytes};
    const int64_t in_row = row - k * bucket, left = entries - at.begin;
    at.size = at.size < in_row ? at.size : in_row;
    at.size = at.size < left ? at.size : left;
    return at;
  }
  TESSERA_HOST_DEVICE int64_t tiles() const {
    return CeilDiv(bucket < entries ? bucket : entries, kTile);  // of a bucket
  }
  int64_t blocks() const { return buckets * tiles(); }
};

// The norm's sum in the order of the CPU's 16 lanes (common/codec/bucket_loops.cc).
constexpr int kNormLanes = 16;

// The sum `held + entry` of error feedback, or the entry.
TESSERA_HOST_DEVICE inline float EntryAt(const float* entries, const float* residual, int64_t i) {
  return residual == nullptr ? entries[i] : residual[i] + entries[i];
}

TESSERA_HOST_DEVICE inline double NormLane(const float* entries, const float* residual,
                                           int64_t begin, int64_t size, int lane) {
  double sum = 0;
  for (int64_t i = lane; i < size; i += kNormLanes) {
    const double x = EntryAt(entries, residual, begin + i);
    sum += x * x;
  }
  return sum;
}

TESSERA_HOST_DEVICE inline double NormSum(const double* lanes) {
  double sum = 0;
  for (int lane = 0; lane < kNormLanes; ++lane) sum += lanes[lane];
  return sum;
}

// A block for each bucket that is longer than a tile: it finds the bucket's scale and writes its header.
struct ScaleBuckets {
  static constexpr int kThreads = 256;
  static constexpr int kPhases = 2;
  static constexpr bool Reduces(int phase) { return phase == 0; }
  struct Value {
    uint32_t largest;
  };
  struct Shared {
    Value total;
    double lanes[kNormLanes];
  };
  struct Own {
    Value value;
  };
  BucketGrid grid;
  bool nearest, l2_norm;
  const float* entries;
  const float* residual;
  char* out;
  BucketScale* scales;

  TESSERA_HOST_DEVICE static Value Combine(const Value& a, const Value& b) {
    return {a.largest < b.largest ? b.largest : a.largest};
  }

  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, Shared& shared, Own& own) const {
    const BucketGrid::Bucket bucket = grid.At(lane.block);
    if constexpr (phase == 0) {
      own.value = {0};
      TESSERA_UNROLL_8 for (int64_t i = lane.thread; i < bucket.size; i += kThreads) {
        own.value =
            Combine(own.value, {MagnitudeBits(EntryAt(entries, residual, bucket.begin + i))});
      }
      if (l2_norm && lane.thread < kNormLanes) {
        shared.lanes[lane.thread] =
            NormLane(entries, residual, bucket.begin, bucket.size, lane.thread);
      }
    } else {
      if (lane.thread > 0) return;
      scales[bucket.number] = BucketScaleOf(nearest, grid.divisor, shared.total.largest,
                                            l2_norm ? NormSum(shared.lanes) : -1.0);
      PutFloat(scales[bucket.number].header, out + bucket.byte);
    }
  }
};

// The codes of a tile of a bucket. kWhole: no bucket is longer than a tile, so that its scale is found
// on the way, and entries are read once. Else ScaleBuckets was there before.
//   phase 0  the largest magnitude     1  codes, and what is held back     2  bytes
// A thread's entries are those that share a block of random numbers: every 16th of a group.
template <bool kRandom, bool kWhole>
struct EncodeBuckets {
  static constexpr int kThreads = BucketGrid::kThreads;
  static constexpr int kPhases = 3;
  static constexpr bool Reduces(int phase) { return kWhole && phase == 0; }
  using Value = ScaleBuckets::Value;
  struct Shared {
    Value total;
    double lanes[kNormLanes];
    int8_t codes[BucketGrid::kTile];
  };
  struct Own {
    Value value;
    float v[BucketGrid::kOwn];
  };
  BucketGrid grid;
  bool l2_norm;
  PayloadRandom random;
  const float* entries;
  float* residual;  // null: nothing is held back
  char* out;
  const BucketScale* scales;  // unless kWhole

  TESSERA_HOST_DEVICE static Value Combine(const Value& a, const Value& b) {
    return ScaleBuckets::Combine(a, b);
  }

  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, Shared& shared, Own& own) const {
    const int64_t tiles = kWhole ? 1 : grid.tiles();
    const BucketGrid::Bucket bucket = grid.At(lane.block / tiles);
    const int64_t tile = lane.block % tiles * BucketGrid::kTile;
    if constexpr (phase == 0) {
      own.value = {0};
      TESSERA_UNROLL for (int k = 0; k < BucketGrid::kOwn; ++k) {
        const int64_t i = tile + Place(lane.thread, k);
        own.v[k] = i < bucket.size ? EntryAt(entries, residual, bucket.begin + i) : 0.0f;
        own.value = Combine(own.value, {MagnitudeBits(own.v[k])});
      }
      if (kRandom && kWhole && l2_norm && lane.thread < kNormLanes) {
        shared.lanes[lane.thread] =
            NormLane(entries, residual, bucket.begin, bucket.size, lane.thread);
      }
    } else if constexpr (phase == 1) {
      BucketScale scale;
      if constexpr (kWhole) {
        scale = BucketScaleOf(!kRandom, grid.divisor, shared.total.largest,
                              l2_norm ? NormSum(shared.lanes) : -1.0);
        if (lane.thread == 0) PutFloat(scale.header, out + bucket.byte);
      } else {
        scale = scales[bucket.number];
      }
      Code(lane.thread, tile, bucket, scale, shared, own);
    } else {
      const int first = 8 * lane.thread;
      const int64_t left = bucket.size - tile - first;
      if (left <= 0) return;
      const int count = left < 8 ? static_cast<int>(left) : 8;
      const uint64_t mask = (uint64_t{1} << grid.bits) - 1;
      uint64_t packed = 0;
      for (int i = 0; i < count; ++i) {
        packed |= (static_cast<uint64_t>(shared.codes[first + i]) & mask) << grid.bits * i;
      }
      // Codes before this thread's fill whole bytes: there are a multiple of 8.
      const int64_t before = (tile + first) / 8 * grid.bits;
      PutBytes(packed, (count * grid.bits + 7) / 8, out + bucket.byte + 4 + before);
    }
  }

 private:
  // Returns the place in the tile of a thread's entry k.
  TESSERA_HOST_DEVICE static int Place(int thread, int k) {
    constexpr int kLanes = static_cast<int>(kRandomLanes);
    return thread / kLanes * static_cast<int>(kRandomGroup) + thread % kLanes + kLanes * k;
  }

  TESSERA_HOST_DEVICE void Code(int thread, int64_t tile, const BucketGrid::Bucket& bucket,
                                const BucketScale& scale, Shared& shared, const Own& own) const {
    const BucketRandom here = {random, static_cast<uint64_t>(grid.first_bucket + bucket.number)};
    const int64_t first = tile + Place(thread, 0);
    if (first >= bucket.size) return;
    PhiloxBlock words = {};
    if (kRandom && scale.inverse != 0) {
      words = RoundingWords(here, first / kRandomGroup, first % kRandomLanes);
    }
    TESSERA_UNROLL for (int k = 0; k < BucketGrid::kOwn; ++k) {
      const int64_t i = tile + Place(thread, k);
      if (i >= bucket.size) continue;
      int8_t code = 0;
      if (scale.inverse != 0) {
        code = kRandom ? RoundedAtRandom(own.v[k], scale.inverse, grid.divisor, words, k, here, i)
                       : NearestCode(own.v[k], scale.inverse);
      }
      shared.codes[i - tile] = code;
      if (residual == nullptr) continue;
      const float sent =
          scale.inverse == 0 ? UncodedEntry(scale) : static_cast<float>(code) * scale.factor;
      residual[bucket.begin + i] = own.v[k] - sent;
    }
  }
};

// Twice four entries of a thread, so that threads side by side write side by side. Codes are whole bytes
// by eights: two threads read the same ones.
struct DecodeBuckets {
  static constexpr int kFours = 2;
  static constexpr int kThreads = BucketGrid::kTile / (4 * kFours);
  static constexpr int kPhases = 1;
  struct Shared {};
  struct Own {};
  static constexpr bool Reduces(int) { return false; }
  BucketGrid grid;
  const char* in;
  float* entries;

  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, Shared&, Own&) const {
    const int64_t tiles = grid.tiles();
    const BucketGrid::Bucket bucket = grid.At(lane.block / tiles);
    const int64_t tile = lane.block % tiles * BucketGrid::kTile;
    const float factor = TakeFloat(in + bucket.byte) / grid.divisor;
    const int half = lane.thread % 2;
    uint64_t packed[kFours] = {};
    TESSERA_UNROLL for (int f = 0; f < kFours; ++f) {
      const int64_t first = tile + Place(lane.thread, f);
      const int64_t of_eight = bucket.size - first + 4 * half;
      if (of_eight <= 4 * half) continue;
      const int count = of_eight < 8 ? static_cast<int>(of_eight) : 8;
      const char* const codes = in + bucket.byte + 4 + first / 8 * grid.bits;
      packed[f] = TakeBytes(codes, (count * grid.bits + 7) / 8) >> 4 * half * grid.bits;
    }
    const int unused = 64 - grid.bits;
    TESSERA_UNROLL for (int f = 0; f < kFours; ++f) {
      const int64_t first = tile + Place(lane.thread, f), left = bucket.size - first;
      float v[4];
      TESSERA_UNROLL for (int i = 0; i < 4; ++i) {
        // Shifted up and back its highest bit extends it.
        const auto code = static_cast<int64_t>(packed[f] >> grid.bits * i << unused) >> unused;
        v[i] = static_cast<float>(static_cast<int32_t>(code)) * factor;
      }
      float* const to = entries + bucket.begin + first;
      if (left >= 4) {
        StoreFour(v, IsMultiple(to, 16), to);
        continue;
      }
      TESSERA_UNROLL for (int i = 0; i < 3; ++i) {
        if (i < left) to[i] = v[i];
      }
    }
  }

 private:
  // Returns the place in the tile of the first entry of a thread's f-th four.
  TESSERA_HOST_DEVICE static int Place(int thread, int f) { return 4 * (f * kThreads + thread); }
};

}  // namespace tessera::cuda

#endif  // TESSERA_KERNELS_CUDA_CODEC_BUCKET_KERNELS_H_
