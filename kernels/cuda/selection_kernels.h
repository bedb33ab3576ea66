// What exchange.cc runs where only some entries are sent: those that have grown to a threshold, and those
// of a set.
#ifndef TESSERA_KERNELS_CUDA_SELECTION_KERNELS_H_
#define TESSERA_KERNELS_CUDA_SELECTION_KERNELS_H_

#include <cmath>
#include <cstdint>
#include <cstring>

#include "common/codec/threshold_run.h"
#include "kernels/cuda/codec/bytes.h"
#include "kernels/cuda/tiles.h"

namespace tessera::cuda {

struct SampleEntries : OnePhase {
  const float* update;
  const float* residual;
  float* magnitudes;
  int64_t count, distance;

  int64_t blocks() const { return CeilDiv(count, kThreads); }

  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, Shared&, Own&) const {
    const int64_t k = lane.block * kThreads + lane.thread;
    if (k >= count) return;
    magnitudes[k] = std::fabs(update[k * distance] + residual[k * distance]);
  }
};

// ThresholdTile of kernels/exchange.h.
struct TileMarks {
  uint32_t marks;
  uint32_t largest;
};

// A block for each run of kThresholdRun entries. Reads 8n bytes, writes 4n and two bits an entry.
//   phase 0  residuals, and a flag for each entry: 1 it is sent, 2 it is negative     1  the bits
struct FindMarks {
  static constexpr int kThreads = 256;
  static constexpr int kPhases = 2;
  static constexpr int kWords = static_cast<int>(kThresholdRun / 32);
  static constexpr bool Reduces(int phase) { return phase == 0; }
  using Value = TileMarks;
  struct Shared {
    Value total;
    uint32_t flags[kThresholdRun / 4];  // a byte for each entry
  };
  struct Own {
    Value value;
  };
  const float* update;
  float* residual;
  int64_t n;
  float tau;
  TileMarks* tiles;
  uint32_t* bits;

  int64_t blocks() const { return CeilDiv(n, kThresholdRun); }

  TESSERA_HOST_DEVICE static Value Combine(const Value& a, const Value& b) {
    return {a.marks + b.marks, a.largest < b.largest ? b.largest : a.largest};
  }

  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, Shared& shared, Own& own) const {
    if constexpr (phase == 0) {
      own.value = {0, 0};
      TESSERA_UNROLL for (int step = 0; step < kThresholdRun / (4 * kThreads); ++step) {
        Four(lane, 4 * (step * kThreads + lane.thread), shared, own);
      }
    } else {
      if (lane.thread == 0) tiles[lane.block] = shared.total;
      const int word = lane.thread % kWords;
      // The first half of the threads packs which are sent, the second which are negative.
      const uint32_t flag = lane.thread < kWords ? 1 : 2;
      uint32_t packed = 0;
      TESSERA_UNROLL for (int i = 0; i < 8; ++i) {
        // Threads of a warp begin at different banks.
        const int four = (i + word / 4) % 8;
        const uint32_t flags = shared.flags[8 * word + four] & flag * 0x01010101u;
        // The bits of the four bytes, side by side.
        const uint32_t bits_of_four = ((flags >> (flag - 1)) * 0x01020408u >> 24) & 15u;
        packed |= bits_of_four << 4 * four;
      }
      bits[lane.block * 2 * kWords + lane.thread] = packed;
    }
  }

 private:
  static_assert(kThreads == 2 * kWords);

  TESSERA_HOST_DEVICE void Four(const Lane& lane, int place, Shared& shared, Own& own) const {
    const int64_t i = lane.block * kThresholdRun + place;
    const int count = n - i >= 4 ? 4 : (n - i > 0 ? static_cast<int>(n - i) : 0);
    float u[4] = {}, r[4] = {};
    if (count == 4) {
      LoadFour(update + i, IsMultiple(update + i, 16), u);
      LoadFour(residual + i, IsMultiple(residual + i, 16), r);
    } else {
      TESSERA_UNROLL for (int k = 0; k < 3; ++k) {
        if (k >= count) continue;
        u[k] = update[i + k];
        r[k] = residual[i + k];
      }
    }
    uint32_t flags = 0;
    TESSERA_UNROLL for (int k = 0; k < 4; ++k) {
      const float v = u[k] + r[k];
      const uint32_t magnitude = MagnitudeBits(v);
      const bool sent = k < count && std::fabs(v) >= tau;
      const bool negative = v < 0.0f;
      r[k] = sent ? v - (negative ? -tau : tau) : v;
      flags |= (sent ? (negative ? 3u : 1u) : 0u) << 8 * k;
      own.value = Combine(own.value, {sent ? 1u : 0u, k < count ? magnitude : 0u});
    }
    shared.flags[place / 4] = flags;
    if (count == 4) return StoreFour(r, IsMultiple(residual + i, 16), residual + i);
    TESSERA_UNROLL for (int k = 0; k < 3; ++k) {
      if (k < count) residual[i + k] = r[k];
    }
  }
};

// A thread lists the marks of a word of bits.
struct ListMarks {
  static constexpr int kThreads = FindMarks::kWords;
  static constexpr int kPhases = 2;
  static constexpr bool Reduces(int) { return false; }
  struct Shared {
    int counts[kThreads];
  };
  struct Own {
    uint32_t sent;
  };
  const uint32_t* bits;
  const int64_t* begin;
  uint32_t* marks;

  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, Shared& shared, Own& own) const {
    const uint32_t* const words = bits + lane.block * 2 * kThreads;
    if constexpr (phase == 0) {
      own.sent = words[lane.thread];
      shared.counts[lane.thread] = CountBits(own.sent);
    } else {
      if (own.sent == 0) return;
      int64_t at = begin[lane.block];
      for (int word = 0; word < lane.thread; ++word) at += shared.counts[word];
      const uint32_t negative = words[kThreads + lane.thread];
      for (uint32_t bit = 0; bit < 32; ++bit) {
        if ((own.sent >> bit & 1u) == 0) continue;
        marks[at++] =
            (32u * static_cast<uint32_t>(lane.thread) + bit) << 1 | (negative >> bit & 1u);
      }
    }
  }
};

// PlaceSet of kernels/exchange.h.
struct SetOfPlaces {
  static constexpr int kRankPlaces = 256;
  const uint64_t* words;
  const int64_t* ranks;
  const uint64_t* steps;
};

// Deals the places [begin, end) to warps: each has a group of kRankPlaces at a time, the first one of which holds
// `begin`.
struct GroupsOfPlaces : OnePhase {
  static constexpr int kLanes = 32;
  static constexpr int kGroups = kThreads / kLanes;  // of a block
  SetOfPlaces set;
  int64_t begin, end;
  const float* from;
  float* to;

  TESSERA_HOST_DEVICE int64_t first() const { return begin / SetOfPlaces::kRankPlaces; }
  int64_t blocks() const {
    if (begin == end) return 0;
    return CeilDiv(CeilDiv(end, SetOfPlaces::kRankPlaces) - first(), kGroups);
  }

 protected:
  // One group, and which of its places are meant: [low, high).
  struct Group {
    int64_t index, origin;
    int low, high;

    TESSERA_HOST_DEVICE bool whole() const { return low == 0 && high == SetOfPlaces::kRankPlaces; }
  };
  TESSERA_HOST_DEVICE Group GroupOf(const Lane& lane) const {
    Group group;
    group.index = first() + lane.block * kGroups + lane.thread / kLanes;
    group.origin = group.index * SetOfPlaces::kRankPlaces;
    group.low = begin > group.origin ? static_cast<int>(begin - group.origin) : 0;
    group.high = end - group.origin < SetOfPlaces::kRankPlaces
                     ? static_cast<int>(end - group.origin)
                     : SetOfPlaces::kRankPlaces;
    return group;
  }

  // The bits from `low` up to `high`, of a word.
  TESSERA_HOST_DEVICE static uint32_t Within(int low, int high) {
    const uint32_t from_low = low <= 0 ? ~0u : (low < kLanes ? ~0u << low : 0u);
    const uint32_t to_high = high >= kLanes ? ~0u : (high > 0 ? ~(~0u << high) : 0u);
    return from_low & to_high;
  }
};

// From `all` to `values`. Each thread has four places side by side, in each half of the group: they are read at once,
// as their piece of memory would be whichever of them is in the set.
struct GatherPlaces : GroupsOfPlaces {
  static constexpr int kResident = 8;
  static constexpr int kHalves = SetOfPlaces::kRankPlaces / (4 * kLanes);

  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, Shared&, Own&) const {
    const Group group = GroupOf(lane);
    if (group.high <= 0) return;
    if (group.whole() && IsMultiple(from + (group.origin - begin), 16)) {
      Move<true>(lane, group);
    } else {
      Move<false>(lane, group);
    }
  }

 private:
  // kAligned: of a whole group whose places may be read four at once.
  template <bool kAligned>
  TESSERA_HOST_DEVICE void Move(const Lane& lane, const Group& group) const {
    const int word_of_half = lane.thread % kLanes / 8, shift = 4 * (lane.thread % 8);
    const float* const source = from + (group.origin - begin);
    const uint64_t* const words = set.words + group.origin / 64;
    const uint64_t steps = set.steps[group.index];
    float v[kHalves][4];
    uint32_t four[kHalves];
    int rank[kHalves];
    TESSERA_UNROLL for (int half = 0; half < kHalves; ++half) {
      const int w = 4 * half + word_of_half, place = kLanes * w + shift;
      const uint64_t both = kAligned || kLanes * w < group.high ? words[w / 2] : 0;
      const auto word = static_cast<uint32_t>(w % 2 == 0 ? both : both >> 32);
      rank[half] = static_cast<int>(steps >> 8 * w & 255) + CountBits(word & ((1u << shift) - 1));
      const uint32_t of =
          kAligned ? word : word & Within(group.low - kLanes * w, group.high - kLanes * w);
      four[half] = of >> shift & 15u;
      if constexpr (kAligned) {
        if (four[half] != 0) LoadFour(source + place, true, v[half]);
      } else {
        TESSERA_UNROLL for (int k = 0; k < 4; ++k) {
          if ((four[half] >> k & 1u) != 0) v[half][k] = source[place + k];
        }
        // Marks of the word that are not meant count all the same.
        four[half] |= (word >> shift & 15u) << 4;
      }
    }
    float* const target = to + set.ranks[group.index];
    TESSERA_UNROLL for (int half = 0; half < kHalves; ++half) {
      int at = rank[half];
      TESSERA_UNROLL for (int k = 0; k < 4; ++k) {
        const bool is_in = (four[half] >> k & 1u) != 0;
        if (is_in) target[at] = v[half][k];
        at += kAligned ? is_in : (four[half] >> (k + 4) & 1u) != 0;
      }
    }
  }
};

// Back. A thread has one place of each word, so that those side by side are written at once.
struct ScatterPlaces : GroupsOfPlaces {
  static constexpr int kWords = SetOfPlaces::kRankPlaces / kLanes;  // of 32 bits, of a group
  static constexpr int kResident = 6;

  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, Shared&, Own&) const {
    const Group group = GroupOf(lane);
    if (group.high <= 0) return;
    uint32_t words[kWords];
    TESSERA_UNROLL for (int w = 0; w < kWords; w += 2) {
      const uint64_t word =
          kLanes * w < group.high ? set.words[(group.origin + kLanes * w) / 64] : 0;
      words[w] = static_cast<uint32_t>(word);
      words[w + 1] = static_cast<uint32_t>(word >> 32);
    }
    if (group.whole()) {
      Move<true>(lane, group, words);
    } else {
      Move<false>(lane, group, words);
    }
  }

 private:
  // A word's ranks are counted where they are wanted, so that they take few registers.
  template <bool kWhole>
  TESSERA_HOST_DEVICE void Move(const Lane& lane, const Group& group,
                                const uint32_t (&words)[kWords]) const {
    const float* const source = from + set.ranks[group.index];
    float* const target = to + (group.origin - begin);
    const int bit = lane.thread % kLanes;
    const uint32_t own = uint32_t{1} << bit;
    const auto has = [&](int w) {
      const uint32_t of =
          kWhole ? words[w] : words[w] & Within(group.low - kLanes * w, group.high - kLanes * w);
      return (of & own) != 0;
    };
    int rank = 0;
    float v[kWords];
    TESSERA_UNROLL for (int w = 0; w < kWords; ++w) {
      if (has(w)) v[w] = source[rank + CountBits(words[w] & (own - 1))];
      rank += CountBits(words[w]);
    }
    TESSERA_UNROLL for (int w = 0; w < kWords; ++w) {
      if (has(w)) target[kLanes * w + bit] = v[w];
    }
  }
};

}  // namespace tessera::cuda

#endif  // TESSERA_KERNELS_CUDA_SELECTION_KERNELS_H_
