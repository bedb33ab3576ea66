// The top-k codec (common/codec/topk.h) on a GPU, bit for bit.
#ifndef TESSERA_KERNELS_CUDA_CODEC_TOPK_KERNELS_H_
#define TESSERA_KERNELS_CUDA_CODEC_TOPK_KERNELS_H_

#include <cmath>
#include <cstdint>
#include <cstring>

#include "common/base/host_device.h"
#include "kernels/cuda/codec/bytes.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/tiles.h"

namespace tessera::cuda {

struct LargestOfChunk {
  uint32_t count;    // of magnitudes that reach the one that is tried
  uint32_t largest;  // bits of a magnitude
};

// A block for each chunk, whose values stay in registers: 16 of each thread, side by side. The least magnitude that is
// sent is found bit by bit from the highest, by an iteration each, all of the block's threads counting what reaches it.
// In the last iteration:
//   phase 1  how many entries each thread sends     2  these, in the order of their places     3  levels, by one thread
//   phase 4  codes, and what is held back
struct EncodeLargest {
  static constexpr int kThreads = 256;
  static constexpr int kPhases = 5;
  static constexpr int kChunk = 4096;
  static constexpr int kOwn = kChunk / kThreads;
  static constexpr int kBits = 31;  // of a magnitude
  static constexpr bool Reduces(int phase) { return phase == 0; }
  using Value = LargestOfChunk;
  struct Shared {
    Value total;
    // By thread: entries above the least magnitude sent, and 2^16 times those equal to it.
    uint32_t counts[kThreads];
    // The entries that are sent: their values, and their places in the chunk.
    float values[kChunk];
    uint16_t places[kChunk];
    float mean, low, high;
  };
  struct Own {
    Value value;
    float v[kOwn];
    uint32_t limit;    // the bits found so far
    uint32_t above;    // entries above them, once all are found
    uint32_t largest;  // of the chunk
    uint32_t sent;     // a bit for each own entry
  };
  float* values;
  int64_t entries, k;
  int64_t chunk_bytes;
  char* out;

  int64_t blocks() const { return CeilDiv(entries, kChunk); }
  TESSERA_HOST_DEVICE int64_t Iterations(int64_t) const { return kBits; }

  TESSERA_HOST_DEVICE static Value Combine(const Value& a, const Value& b) {
    return {a.count + b.count, a.largest < b.largest ? b.largest : a.largest};
  }

  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, Shared& shared, Own& own) const {
    const int64_t left = entries - lane.block * kChunk;
    const int size = left < kChunk ? static_cast<int>(left) : kChunk;
    const auto sent = static_cast<int>(CeilDiv(k * size, kChunk));
    const int first = kOwn * lane.thread;
    const bool is_last = lane.iteration + 1 == kBits;
    const uint32_t bit = uint32_t{1} << (kBits - 1 - lane.iteration);
    if constexpr (phase == 0) {
      if (lane.iteration == 0) {
        own.limit = own.above = own.largest = 0;
        Load(lane, first, size, own);
      }
      Count(own.limit | bit, own);
    } else if constexpr (phase == 1) {
      if (lane.iteration == 0) own.largest = shared.total.largest;
      if (shared.total.count >= static_cast<uint32_t>(sent)) {
        own.limit |= bit;
      } else {
        own.above = shared.total.count;
      }
      if (is_last) shared.counts[lane.thread] = CountOwn(first, size, own);
    } else if constexpr (phase == 2) {
      if (is_last) Choose(lane, first, size, sent, shared, own);
    } else if constexpr (phase == 3) {
      if (is_last && lane.thread == 0) FindLevels(sent, own, shared);
    } else if (is_last) {
      Write(lane, first, size, sent, shared, own);
    }
  }

 private:
  static constexpr uint32_t kInfinity = 0x7f800000u;

  TESSERA_HOST_DEVICE void Load(const Lane& lane, int first, int size, Own& own) const {
    const float* const from = values + lane.block * kChunk + first;
    const bool aligned = IsMultiple(from, 16);
    TESSERA_UNROLL for (int i = 0; i < kOwn; i += 4) {
      if (first + i + 4 <= size) {
        LoadFour(from + i, aligned, own.v + i);
        continue;
      }
      TESSERA_UNROLL for (int j = i; j < i + 4; ++j) own.v[j] = first + j < size ? from[j] : 0.0f;
    }
  }

  // Places behind the last entry count nowhere, as nothing that is tried is 0.
  TESSERA_HOST_DEVICE static void Count(uint32_t tried, Own& own) {
    own.value = {0, 0};
    TESSERA_UNROLL for (int i = 0; i < kOwn; ++i) {
      const uint32_t magnitude = MagnitudeBits(own.v[i]);
      own.value = Combine(own.value, {magnitude >= tried ? 1u : 0u, magnitude});
    }
  }

  TESSERA_HOST_DEVICE static uint32_t CountOwn(int first, int size, const Own& own) {
    uint32_t counts = 0;
    TESSERA_UNROLL for (int i = 0; i < kOwn; ++i) {
      if (first + i >= size) continue;
      const uint32_t magnitude = MagnitudeBits(own.v[i]);
      counts += magnitude > own.limit ? 1u : (magnitude == own.limit ? 0x10000u : 0u);
    }
    return counts;
  }

  // Entries above the limit are sent, and of those equal to it as many as are wanted, the first ones.
  TESSERA_HOST_DEVICE static void Choose(const Lane& lane, int first, int size, int sent,
                                         Shared& shared, Own& own) {
    uint32_t above = 0, equal = 0;
    for (int thread = 0; thread < lane.thread; ++thread) {
      above += shared.counts[thread] & 0xffffu;
      equal += shared.counts[thread] >> 16;
    }
    const uint32_t wanted = static_cast<uint32_t>(sent) - own.above;
    own.sent = 0;
    TESSERA_UNROLL for (int i = 0; i < kOwn; ++i) {
      if (first + i >= size) continue;
      const uint32_t magnitude = MagnitudeBits(own.v[i]);
      const bool is_equal = magnitude == own.limit;
      if (magnitude > own.limit || (is_equal && equal < wanted)) {
        const uint32_t at = above + (equal < wanted ? equal : wanted);
        own.sent |= 1u << i;
        shared.values[at] = own.v[i];
        shared.places[at] = static_cast<uint16_t>(first + i);
      }
      above += magnitude > own.limit ? 1 : 0;
      equal += is_equal ? 1 : 0;
    }
  }

  // In the order of the host's sums.
  TESSERA_HOST_DEVICE static void FindLevels(int sent, const Own& own, Shared& shared) {
    shared.mean = 0;
    if (own.largest >= kInfinity) {
      const uint32_t nan = 0x7fc00000u;
      std::memcpy(&shared.low, &nan, sizeof(nan));
      shared.high = shared.low;
      return;
    }
    double all = 0, low = 0, high = 0;
    for (int i = 0; i < sent; ++i) all += static_cast<double>(std::fabs(shared.values[i]));
    shared.mean = static_cast<float>(all / static_cast<double>(sent));
    int count_low = 0, count_high = 0;
    for (int i = 0; i < sent; ++i) {
      const float magnitude = std::fabs(shared.values[i]);
      if (magnitude >= shared.mean) {
        high += static_cast<double>(magnitude);
        ++count_high;
      } else {
        low += static_cast<double>(magnitude);
        ++count_low;
      }
    }
    shared.high = static_cast<float>(high / static_cast<double>(count_high));
    shared.low =
        count_low == 0 ? shared.high : static_cast<float>(low / static_cast<double>(count_low));
  }

  TESSERA_HOST_DEVICE static bool IsNegative(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    return bits >> 31 != 0;
  }

  TESSERA_HOST_DEVICE void Write(const Lane& lane, int first, int size, int sent,
                                 const Shared& shared, const Own& own) const {
    char* const chunk = out + lane.block * chunk_bytes;
    if (lane.thread == 0) {
      PutFloat(shared.low, chunk);
      PutFloat(shared.high, chunk + 4);
    }
    // Four codes are seven bytes.
    for (int begin = 4 * lane.thread; begin < sent; begin += 4 * kThreads) {
      const int count = sent - begin < 4 ? sent - begin : 4;
      uint64_t packed = 0;
      for (int i = 0; i < count; ++i) {
        const float v = shared.values[begin + i];
        const uint64_t code = shared.places[begin + i] |
                              (std::fabs(v) >= shared.mean ? 1u << 12 : 0u) |
                              (IsNegative(v) ? 1u << 13 : 0u);
        packed |= code << 14 * i;
      }
      PutBytes(packed, (14 * count + 7) / 8, chunk + 8 + begin / 4 * 7);
    }
    if (own.sent == 0 || own.largest >= kInfinity) return;
    float* const held = values + lane.block * kChunk + first;
    TESSERA_UNROLL for (int i = 0; i < kOwn; ++i) {
      if ((own.sent >> i & 1u) == 0) continue;
      const float level = std::fabs(own.v[i]) >= shared.mean ? shared.high : shared.low;
      held[i] = own.v[i] - (IsNegative(own.v[i]) ? -level : level);
    }
  }
};

}  // namespace tessera::cuda

#endif  // TESSERA_KERNELS_CUDA_CODEC_TOPK_KERNELS_H_
