// What loss.cc runs: a block for each row, then one block that adds the rows up.
#ifndef TESSERA_KERNELS_CUDA_LOSS_KERNELS_H_
#define TESSERA_KERNELS_CUDA_LOSS_KERNELS_H_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cuda/tiles.h"
#include "kernels/exponential.h"

namespace tessera::cuda {

constexpr int kLossThreads = 256;
constexpr int kDepths = 3;
constexpr int kFirst = 5;  // the deepest
constexpr int kTop = 10;   // of single labels

TESSERA_HOST_DEVICE constexpr int Depth(int d) { return d == 0 ? 1 : (d == 1 ? 3 : kFirst); }

// LossSums of kernels/loss.h, for one row or all.
struct RowLoss {
  double loss;
  int64_t correct;
  int64_t hits[kDepths];
  int64_t top_hits;
};

// Where rows put theirs: 12 bytes each, side by side, for one block that reads all of them.
struct RowLosses {
  double* losses;
  // Half a byte each for `correct` and `top_hits`, which are 0 or 1, and a byte for each of `hits`, up to kFirst.
  uint32_t* counts;

  TESSERA_HOST_DEVICE void Put(int64_t row, const RowLoss& of) const {
    losses[row] = of.loss;
    auto packed = static_cast<uint32_t>(of.correct + 16 * of.top_hits);
    for (int d = 0; d < kDepths; ++d) packed += static_cast<uint32_t>(of.hits[d]) * (256u << 8 * d);
    counts[row] = packed;
  }
};

constexpr float kLowest = -INFINITY;

// What a row knows of a label: its logit, and how many rank before it. An index beyond the row, or
// a NaN there, ranks behind all that count.
struct Standing {
  double sum;
  int64_t before;
};

TESSERA_HOST_DEVICE inline Standing CombineStandings(const Standing& a, const Standing& b) {
  return {a.sum + b.sum, a.before + b.before};
}

template <typename Index>
TESSERA_HOST_DEVICE bool RanksBefore(float z, Index i, float other, Index at) {
  return z > other || (z == other && i < at);
}

TESSERA_HOST_DEVICE inline void CountHits(const Standing& standing, float z, RowLoss* row) {
  for (int d = 0; d < kDepths; ++d) row->hits[d] = z == z && standing.before < Depth(d) ? 1 : 0;
  row->top_hits = z == z && standing.before < kTop ? 1 : 0;
}

// Phase 0: the largest logit.  1: the sum of exponentials, and the label's rank.  2: the gradient.
// A row of up to kThreads * kKept is read once, and stays in registers. A longer one (kKept is 0) is read
// in each phase. With smoothing the logits themselves are summed, too.
template <int kKept, bool kSmooths = false>
struct SoftmaxRows {
  static constexpr int kThreads = kLossThreads;
  static constexpr int kPhases = 3;
  static constexpr bool Reduces(int phase) { return phase < 2; }
  static constexpr int64_t kColumnsMax = int64_t{kThreads} * kKept;
  static constexpr int kResident = kKept == 32 ? 4 : 0;
  using Index = int32_t;  // Labels are such, and 64 bits would be two instructions for each of one.
  struct Plain {
    float largest;
    float unused;
    Standing standing;
  };
  struct Smoothed : Plain {
    double logits;  // the sum of z - shift
  };
  using Value = typename std::conditional<kSmooths, Smoothed, Plain>::type;
  struct Shared {
    Value total;
  };
  struct Own {
    Value value;
    float label_z, shift;
    float z[kKept == 0 ? 1 : kKept];  // behind phase 1: the exponentials
  };
  const float* logits;
  const int32_t* labels;
  float* gradient;  // null: not wanted; may be the logits
  RowLosses rows;
  int64_t columns;
  float share;  // 1 / rows of the minibatch
  float even;   // the part of a target that goes to all outputs

  TESSERA_HOST_DEVICE static Value Combine(const Value& a, const Value& b) {
    Value both = a;
    both.largest = a.largest < b.largest ? b.largest : a.largest;
    both.standing = CombineStandings(a.standing, b.standing);
    if constexpr (kSmooths) both.logits = a.logits + b.logits;
    return both;
  }

  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, Shared& shared, Own& own) const {
    const float* const z = logits + lane.block * columns;
    const Index label = labels[lane.block];
    if constexpr (phase == 0) {
      if constexpr (kKept > 0) {
        TESSERA_UNROLL for (int k = 0; k < kKept; ++k) {
          const Index i = lane.thread + k * kThreads;
          // Places behind the row's end are neither the largest, nor before a label, and exp() makes 0 of them.
          own.z[k] = i < static_cast<Index>(columns) ? z[i] : kLowest;
        }
      }
      own.label_z = z[label];
      float largest = kLowest;
      ForEach(lane, own, [&](Index, float& value) {
        largest = std::fmax(value, largest);  // No NaN.
      });
      own.value = {};
      own.value.largest = largest;
    } else if constexpr (phase == 1) {
      const float shift = shared.total.largest, label_z = own.label_z;
      double sum = 0, logit_sum = 0;
      Index before = 0;
      ForEach(lane, own, [&](Index i, float& value) {
        if constexpr (kSmooths) {
          static_assert(kKept == 0, "rows that are kept have values behind their end");
          logit_sum += static_cast<double>(value) - static_cast<double>(shift);
        }
        before += RanksBefore(value, i, label_z, label) ? 1 : 0;
        value = FastExp(value - shift);
        sum += static_cast<double>(value);
      });
      own.shift = shift;
      own.value = {};
      own.value.largest = kLowest;
      own.value.standing = {sum, before};
      if constexpr (kSmooths) own.value.logits = logit_sum;
    } else {
      const Standing& standing = shared.total.standing;
      if (lane.thread == 0) {
        RowLoss row;
        double of_target = static_cast<double>(own.label_z) - static_cast<double>(own.shift);
        if constexpr (kSmooths) {
          const auto part = static_cast<double>(even);
          of_target =
              (1 - part) * of_target + part / static_cast<double>(columns) * shared.total.logits;
        }
        row.loss = std::log(standing.sum) - of_target;
        CountHits(standing, own.label_z, &row);
        row.correct = row.hits[0];
        rows.Put(lane.block, row);
      }
      if (gradient == nullptr) return;
      float* const g = gradient + lane.block * columns;
      const float factor = static_cast<float>(static_cast<double>(share) / standing.sum);
      const auto part = kSmooths ? static_cast<double>(even) : 0.0;
      const float less = kSmooths ? static_cast<float>(share * (1 - part)) : share;
      const auto all = static_cast<float>(share * part / static_cast<double>(columns));
      const float shift = own.shift;
      ForEach(lane, own, [&](Index i, float& value) {
        float scaled = (kKept > 0 ? value : FastExp(value - shift)) * factor;
        if constexpr (kSmooths) scaled -= all;
        if (i < static_cast<Index>(columns)) g[i] = i == label ? scaled - less : scaled;
      });
    }
  }

 private:
  // Calls f for each value. In a row that is kept f may change values, and gets those behind the row's end, too.
  template <typename F>
  TESSERA_HOST_DEVICE void ForEach(const Lane& lane, Own& own, const F& f) const {
    if constexpr (kKept > 0) {
      TESSERA_UNROLL for (int k = 0; k < kKept; ++k) f(lane.thread + k * kThreads, own.z[k]);
    } else {
      ForOwn<kThreads, 8, 8>(
          columns, lane.thread, [&f](Index i, Index behind, float value) { f(i + behind, value); },
          [](bool) {}, logits + lane.block * columns);
    }
  }
};

// A key by which logits are ranked: the logit that ranks first has the largest key; equal ones have the same, a
// NaN has 0.
TESSERA_HOST_DEVICE inline uint32_t RankKey(float z) {
  const float positive_zero = z + 0.0f;
  uint32_t bits;
  std::memcpy(&bits, &positive_zero, sizeof(bits));
  const uint32_t key = bits ^ ((bits & 0x80000000u) != 0 ? 0xffffffffu : 0x80000000u);
  return z == z ? key : 0;
}

// The first kFirst of a thread's logits: the largest first, equal ones by index.
struct OwnFirst {
  uint32_t key[kFirst];  // 0: there is none
  int32_t index[kFirst];
};

// Indices come in rising order. Places that the compiler knows, so that all of it stays in registers.
TESSERA_HOST_DEVICE inline void Offer(uint32_t key, int32_t index, OwnFirst* first) {
  if (key <= first->key[kFirst - 1]) return;
  TESSERA_UNROLL for (int place = kFirst - 1; place >= 0; --place) {
    const bool moves = place > 0 && key > first->key[place == 0 ? 0 : place - 1];
    const bool takes = key > first->key[place];
    if (moves) {
      first->key[place] = first->key[place == 0 ? 0 : place - 1];
      first->index[place] = first->index[place == 0 ? 0 : place - 1];
    } else if (takes) {
      first->key[place] = key;
      first->index[place] = index;
    }
  }
}

// The first kFirst of some logits, each as its key above the complement of its index, so that what ranks first is the
// largest. 0: there is none.
struct First {
  uint64_t v[kFirst];
};

TESSERA_HOST_DEVICE inline First FirstOf(const OwnFirst& own) {
  First first;
  TESSERA_UNROLL for (int i = 0; i < kFirst; ++i) {
    first.v[i] =
        own.key[i] == 0 ? 0 : uint64_t{own.key[i]} << 32 | ~static_cast<uint32_t>(own.index[i]);
  }
  return first;
}

// -1: there is none.
TESSERA_HOST_DEVICE inline int64_t IndexOf(uint64_t first) {
  return first == 0 ? -1 : static_cast<int64_t>(~static_cast<uint32_t>(first));
}

// The larger of each with the other's from behind are the first of both. They fall, then rise, and a bitonic network
// sorts them.
TESSERA_HOST_DEVICE inline First CombineFirst(const First& a, const First& b) {
  static_assert(kFirst == 5);
  uint64_t v[kFirst];
  TESSERA_UNROLL for (int i = 0; i < kFirst; ++i) {
    const uint64_t other = b.v[kFirst - 1 - i];
    v[i] = a.v[i] < other ? other : a.v[i];
  }
  const auto order = [&v](int i, int k) {
    const uint64_t low = v[i] < v[k] ? v[i] : v[k], high = v[i] < v[k] ? v[k] : v[i];
    v[i] = low;
    v[k] = high;
  };
  order(0, 4);
  order(0, 2);
  order(1, 3);
  order(0, 1);
  order(2, 3);
  return {{v[4], v[3], v[2], v[1], v[0]}};
}

// 1 / d for d in [1, 2], within a rounding or two; a division would be three times as long.
TESSERA_HOST_DEVICE inline float ReciprocalOf(float d) {
#ifdef __CUDA_ARCH__
  float rough;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(rough) : "f"(d));
  return __fmaf_rn(rough, __fmaf_rn(-d, rough, 1.0f), rough);
#else
  return 1.0f / d;
#endif
}

// With one label to a row: phase 0 reads it, 1 sums and counts, 2 is the row's result.
// With targets the first predictions are found as well.
template <bool kTargets>
struct SigmoidRows {
  static constexpr int kThreads = kLossThreads;
  static constexpr int kPhases = 3;
  static constexpr bool Reduces(int phase) { return phase == 1; }
  static constexpr bool kTreeOfWarps = kTargets;
  static constexpr int kTogether = 4;  // entries, of AddGrown()
  using Index = int32_t;
  // AddGrown()'s sum is the standing's; its product lies between 1 and 2 in each thread.
  struct Labelled {
    Standing standing;
    double product;
  };
  struct Targeted {
    Standing standing;
    double product;
    double own;  // the sum of t z
    First first;
  };
  using Value = typename std::conditional<kTargets, Targeted, Labelled>::type;
  struct Shared {
    Value total;
  };
  struct Own {
    Value value;
    float label_z;
  };
  const float* logits;
  const int32_t* labels;  // without targets
  const float* targets;
  float* gradient;  // null: not wanted; may be the logits
  RowLosses rows;
  int64_t columns;
  float share;  // 1 / rows of the minibatch

  TESSERA_HOST_DEVICE static Value Combine(const Value& a, const Value& b) {
    Value both = a;
    both.standing = CombineStandings(a.standing, b.standing);
    both.product = a.product * b.product;
    if constexpr (kTargets) {
      both.own = a.own + b.own;
      both.first = CombineFirst(a.first, b.first);
    }
    return both;
  }

  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, Shared& shared, Own& own) const {
    const float* z = logits + lane.block * columns;
    const float* t = kTargets ? targets + lane.block * columns : nullptr;
    // The one index whose target is 1, or -1.
    const Index label =
        kTargets ? -1 : (columns == 1 ? labels[lane.block] - 1 : labels[lane.block]);
    if constexpr (phase == 0) {
      own.label_z = label >= 0 ? z[label] : z[0];
    } else if constexpr (phase == 1) {
      float* const g = gradient == nullptr ? nullptr : gradient + lane.block * columns;
      const float part = share, label_z = own.label_z;
      Value value = {};
      value.product = 1;
      Index before = 0;
      OwnFirst first = {};
      float above_one = 0;  // GrowByOnePlus()'s
      const auto add = [&](Index first_index, Index behind, float logit, float target) {
        const float e = FastExp(-std::fabs(logit));
        const bool negative = logit < 0.0f;
        value.standing.sum += static_cast<double>(negative ? 0.0f : logit);
        above_one = GrowByOnePlus(e, above_one);
        const float p = part * ReciprocalOf(1.0f + e);
        float slope = negative ? e * p : p;
        if constexpr (kTargets) {
          value.own +=
              target == 0.0f ? 0.0 : static_cast<double>(target) * static_cast<double>(logit);
          slope -= part * target;
          Offer(RankKey(logit), first_index + behind, &first);
        } else {
          const Index ahead = label - first_index;  // where the label is, for several entries
          before += RanksBefore(logit, behind, label_z, ahead) ? 1 : 0;
          if (behind == ahead) slope -= part;
        }
        if (g != nullptr) g[first_index + behind] = slope;
      };
      const auto close = [&](bool last) {
        AddGrown(above_one, &value.standing.sum, &value.product);
        above_one = 0;
        if (last && value.product > 0x1p500) MovePower(&value.standing.sum, &value.product);
      };
      if constexpr (kTargets) {
        ForOwn<kThreads, 4, kTogether>(columns, lane.thread, add, close, z, t);
        value.first = FirstOf(first);
      } else {
        ForOwn<kThreads, 8, kTogether>(
            columns, lane.thread,
            [&add](Index i, Index behind, float logit) { add(i, behind, logit, 0.0f); }, close, z);
      }
      MovePower(&value.standing.sum, &value.product);
      value.standing.before = before;
      own.value = value;
    } else {
      if (lane.thread == 0) rows.Put(lane.block, Result(shared.total, own.label_z, label, t));
    }
  }

 private:
  TESSERA_HOST_DEVICE RowLoss Result(const Value& total, float label_z, Index label,
                                     const float* t) const {
    RowLoss row = {};
    row.loss = total.standing.sum + std::log(total.product);
    bool single = label == 0;
    if constexpr (kTargets) {
      row.loss -= total.own;
      for (int d = 0; d < kDepths; ++d) {
        for (int i = 0; i < Depth(d); ++i) {
          const int64_t index = IndexOf(total.first.v[i]);
          row.hits[d] += index >= 0 && t[index] > 0.5f ? 1 : 0;
        }
      }
      single = t[0] > 0.5f;
    } else if (label >= 0) {
      row.loss -= static_cast<double>(label_z);
      CountHits(total.standing, label_z, &row);
    }
    row.correct = row.hits[0];
    // The only logit was read as label_z.
    if (columns == 1) row.correct = (single ? label_z > 0.0f : label_z <= 0.0f) ? 1 : 0;
    return row;
  }
};

// Squared distances to labels, or to targets. Phase 0 reads the label's logit, 1 sums and counts, 2 is the row's
// result.
template <bool kTargets>
struct SquareRows {
  static constexpr int kThreads = kLossThreads;
  static constexpr int kPhases = 3;
  static constexpr bool Reduces(int phase) { return phase == 1; }
  using Index = int32_t;
  using Value = Standing;
  struct Shared {
    Value total;
  };
  struct Own {
    Value value;
    float label_z;
  };
  const float* logits;
  const int32_t* labels;  // without targets
  const float* targets;
  float* gradient;  // null: not wanted; may be the logits
  RowLosses rows;
  int64_t columns;
  float share;  // 1 / rows of the minibatch

  TESSERA_HOST_DEVICE static Value Combine(const Value& a, const Value& b) {
    return CombineStandings(a, b);
  }

  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, Shared& shared, Own& own) const {
    const float* const z = logits + lane.block * columns;
    const Index label = kTargets ? 0 : labels[lane.block];
    const bool is_class = !kTargets && columns > 1;
    if constexpr (phase == 0) {
      own.label_z = is_class ? z[label] : 0.0f;
    } else if constexpr (phase == 1) {
      float* const g = gradient == nullptr ? nullptr : gradient + lane.block * columns;
      const auto factor = static_cast<float>(2.0 * share / static_cast<double>(columns));
      const float label_z = own.label_z;
      double sum = 0;
      Index before = 0;
      const auto add = [&](Index i, float logit, float target) {
        const float distance = logit - target;
        sum += static_cast<double>(distance) * static_cast<double>(distance);
        if (g != nullptr) g[i] = distance * factor;
      };
      if constexpr (kTargets) {
        ForOwn<kThreads, 4, 4>(
            columns, lane.thread,
            [&](Index i, Index behind, float logit, float target) {
              add(i + behind, logit, target);
            },
            [](bool) {}, z, targets + lane.block * columns);
      } else {
        ForOwn<kThreads, 8, 8>(
            columns, lane.thread,
            [&](Index first, Index behind, float logit) {
              const Index i = first + behind;
              before += RanksBefore(logit, i, label_z, label) ? 1 : 0;
              add(i, logit, is_class ? (i == label ? 1.0f : 0.0f) : static_cast<float>(label));
            },
            [](bool) {}, z);
      }
      own.value = {sum, before};
    } else {
      if (lane.thread != 0) return;
      RowLoss row = {};
      row.loss = shared.total.sum / static_cast<double>(columns);
      if (is_class) CountHits(shared.total, own.label_z, &row);
      row.correct = row.hits[0];
      rows.Put(lane.block, row);
    }
  }
};

// Adds up all rows in f64, in one block.
struct AddRows {
  static constexpr int kThreads = kLossThreads;
  static constexpr int kPhases = 2;
  static constexpr bool Reduces(int phase) { return phase == 0; }
  using Value = RowLoss;
  struct Shared {
    Value total;
  };
  struct Own {
    Value value;
  };
  RowLosses rows;
  int64_t count;
  bool adds;  // to what is there
  RowLoss* sums;

  TESSERA_HOST_DEVICE static Value Combine(const Value& a, const Value& b) {
    Value both = a;
    both.loss += b.loss;
    both.correct += b.correct;
    for (int d = 0; d < kDepths; ++d) both.hits[d] += b.hits[d];
    both.top_hits += b.top_hits;
    return both;
  }

  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, Shared& shared, Own& own) const {
    if constexpr (phase == 0) {
      own.value = {};
      auto left = static_cast<int32_t>(count) - lane.thread;  // There is no grid of more.
      int64_t row = lane.thread;
      for (; left > (kAtOnce - 1) * kThreads; left -= kAtOnce * kThreads) {
        Add<true>(left, row, &own.value);
        row += kAtOnce * kThreads;
      }
      if (left > 0) Add<false>(left, row, &own.value);
    } else {
      if (lane.thread == 0) *sums = adds ? Combine(*sums, shared.total) : shared.total;
    }
  }

 private:
  static constexpr int kAtOnce =
      8;  // rows whose loads are in flight together: one block has all of them
  static_assert(kAtOnce * kFirst < 256 && kAtOnce < 16);

  // A thread's next kAtOnce rows, or as many of them as are left.
  template <bool kWhole>
  TESSERA_HOST_DEVICE void Add(int32_t left, int64_t row, RowLoss* sum) const {
    double loss[kAtOnce];
    uint32_t packed[kAtOnce], counts = 0;
    TESSERA_UNROLL for (int k = 0; k < kAtOnce; ++k) {
      if (!kWhole && k * kThreads >= left) continue;
      loss[k] = rows.losses[row + k * kThreads];
      packed[k] = rows.counts[row + k * kThreads];
    }
    TESSERA_UNROLL for (int k = 0; k < kAtOnce; ++k) {
      if (!kWhole && k * kThreads >= left) continue;
      sum->loss += loss[k];
      counts += packed[k];
    }
    sum->correct += counts & 0xfu;
    sum->top_hits += counts >> 4 & 0xfu;
    TESSERA_UNROLL for (int d = 0; d < kDepths; ++d) sum->hits[d] += counts >> 8 * (d + 1) & 0xffu;
  }
};

}  // namespace tessera::cuda

#endif  // TESSERA_KERNELS_CUDA_LOSS_KERNELS_H_
