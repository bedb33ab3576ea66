// What loss.cc runs: a block for each row, then one block that adds the rows up.
#ifndef TESSERA_KERNELS_CUDA_LOSS_KERNELS_H_
#define TESSERA_KERNELS_CUDA_LOSS_KERNELS_H_

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/tiles.h"
#include "kernels/exponential.h"

namespace tessera::cuda {

constexpr int kLossThreads = 256;
constexpr int kDepths = 3;
constexpr int kFirst = 5;  // the deepest

TESSERA_HOST_DEVICE constexpr int Depth(int d) { return d == 0 ? 1 : (d == 1 ? 3 : kFirst); }

// LossSums of kernels/loss.h, for one row or all.
struct RowLoss {
  double loss;
  int64_t correct;
  int64_t hits[kDepths];
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

TESSERA_HOST_DEVICE inline bool RanksBefore(float z, int64_t i, float other, int64_t at) {
  return z > other || (z == other && i < at);
}

TESSERA_HOST_DEVICE inline void CountHits(const Standing& standing, float z, RowLoss* row) {
  for (int d = 0; d < kDepths; ++d) row->hits[d] = z == z && standing.before < Depth(d) ? 1 : 0;
}

// Phase 0: the largest logit.  1: the sum of exponentials, and the label's rank.  2: the gradient.
// Reads the logits twice, the second time from the cache while a row fits it.
struct SoftmaxRows {
  static constexpr int kThreads = kLossThreads;
  static constexpr int kPhases = 3;
  static constexpr bool Reduces(int phase) { return phase < 2; }
  struct Value {
    float largest;
    float unused;
    Standing standing;
  };
  struct Shared {
    Value total;
  };
  struct Own {
    Value value;
    float label_z, shift;
  };
  const float* logits;
  const int32_t* labels;
  float* gradient;  // null: not wanted; may be the logits
  RowLoss* rows;
  int64_t columns;
  float share;  // 1 / rows of the minibatch

  TESSERA_HOST_DEVICE static Value Combine(const Value& a, const Value& b) {
    return {a.largest < b.largest ? b.largest : a.largest, 0,
            CombineStandings(a.standing, b.standing)};
  }

  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, Shared& shared, Own& own) const {
    const float* z = logits + lane.block * columns;
    float* g = gradient == nullptr ? nullptr : gradient + lane.block * columns;
    const int64_t label = labels[lane.block];
    if constexpr (phase == 0) {
      own.value = {kLowest, 0, {0, 0}};
      TESSERA_UNROLL_8 for (int64_t i = lane.thread; i < columns; i += kThreads) {
        own.value.largest = z[i] > own.value.largest ? z[i] : own.value.largest;  // No NaN.
      }
      own.label_z = z[label];
    } else if constexpr (phase == 1) {
      own.shift = shared.total.largest;
      own.value = {kLowest, 0, {0, 0}};
      for (int64_t i = lane.thread; i < columns; i += kThreads) {
        const float value = z[i];
        const float term = FastExp(value - own.shift);
        own.value.standing.sum += static_cast<double>(term);
        own.value.standing.before += RanksBefore(value, i, own.label_z, label) ? 1 : 0;
        if (g != nullptr) g[i] = term;
      }
    } else {
      const Standing& standing = shared.total.standing;
      if (lane.thread == 0) {
        RowLoss row;
        row.loss = std::log(standing.sum) -
                   (static_cast<double>(own.label_z) - static_cast<double>(own.shift));
        CountHits(standing, own.label_z, &row);
        row.correct = row.hits[0];
        rows[lane.block] = row;
      }
      if (g == nullptr) return;
      const float factor = static_cast<float>(static_cast<double>(share) / standing.sum);
      for (int64_t i = lane.thread; i < columns; i += kThreads) {
        const float scaled = g[i] * factor;
        g[i] = i == label ? scaled - share : scaled;
      }
    }
  }
};

// The first kFirst of some logits: the largest first, equal ones by index.
struct First {
  float z[kFirst];
  int64_t index[kFirst];  // -1: there is none
};

TESSERA_HOST_DEVICE inline void Offer(float z, int64_t index, First* first) {
  if (z != z || index < 0) return;
  constexpr int last = kFirst - 1;
  if (first->index[last] >= 0 && !RanksBefore(z, index, first->z[last], first->index[last])) return;
  int place = kFirst;
  while (place > 0 && (first->index[place - 1] < 0 ||
                       RanksBefore(z, index, first->z[place - 1], first->index[place - 1]))) {
    --place;
    if (place + 1 < kFirst) {
      first->z[place + 1] = first->z[place];
      first->index[place + 1] = first->index[place];
    }
  }
  if (place == kFirst) return;
  first->z[place] = z;
  first->index[place] = index;
}

// With one label to a row: phase 0 reads it, 1 sums and counts, 2 is the row's result.
// With targets the first predictions are found as well.
template <bool kTargets>
struct SigmoidRows {
  static constexpr int kThreads = kLossThreads;
  static constexpr int kPhases = 3;
  static constexpr bool Reduces(int phase) { return phase == 1; }
  struct Labelled {
    Standing standing;
  };
  struct Targeted {
    Standing standing;
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
  RowLoss* rows;
  int64_t columns;
  float share;  // 1 / rows of the minibatch

  TESSERA_HOST_DEVICE static Value Combine(const Value& a, const Value& b) {
    Value both = a;
    both.standing = CombineStandings(a.standing, b.standing);
    if constexpr (kTargets) {
      both.own = a.own + b.own;
      for (int i = 0; i < kFirst; ++i) Offer(b.first.z[i], b.first.index[i], &both.first);
    }
    return both;
  }

  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, Shared& shared, Own& own) const {
    const float* z = logits + lane.block * columns;
    const float* t = kTargets ? targets + lane.block * columns : nullptr;
    // The one index whose target is 1, or -1.
    const int64_t label =
        kTargets ? -1 : (columns == 1 ? labels[lane.block] - 1 : labels[lane.block]);
    if constexpr (phase == 0) {
      own.label_z = label >= 0 ? z[label] : z[0];
    } else if constexpr (phase == 1) {
      float* g = gradient == nullptr ? nullptr : gradient + lane.block * columns;
      Value value = {};
      if constexpr (kTargets) {
        for (int i = 0; i < kFirst; ++i) value.first.index[i] = -1;
      }
      for (int64_t i = lane.thread; i < columns; i += kThreads) {
        const float logit = z[i];
        const float e = FastExp(logit < 0.0f ? logit : -logit);
        value.standing.sum +=
            static_cast<double>(logit < 0.0f ? 0.0f : logit) + static_cast<double>(FastLog1p(e));
        float slope = share * ((logit < 0.0f ? e : 1.0f) / (1.0f + e));
        if constexpr (kTargets) {
          const float target = t[i];
          value.own +=
              target == 0.0f ? 0.0 : static_cast<double>(target) * static_cast<double>(logit);
          slope -= share * target;
          Offer(logit, i, &value.first);
        } else {
          value.standing.before += RanksBefore(logit, i, own.label_z, label) ? 1 : 0;
          if (i == label) slope -= share;
        }
        if (g != nullptr) g[i] = slope;
      }
      own.value = value;
    } else {
      if (lane.thread == 0) rows[lane.block] = Result(shared.total, own.label_z, label, t);
    }
  }

 private:
  TESSERA_HOST_DEVICE RowLoss Result(const Value& total, float label_z, int64_t label,
                                     const float* t) const {
    RowLoss row = {};
    row.loss = total.standing.sum;
    bool single = label == 0;
    if constexpr (kTargets) {
      row.loss -= total.own;
      for (int d = 0; d < kDepths; ++d) {
        for (int i = 0; i < Depth(d); ++i) {
          const int64_t index = total.first.index[i];
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

// All rows, in f64, by one block.
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
  const RowLoss* rows;
  int64_t count;
  bool adds;  // to what is there
  RowLoss* sums;

  TESSERA_HOST_DEVICE static Value Combine(const Value& a, const Value& b) {
    Value both = a;
    both.loss += b.loss;
    both.correct += b.correct;
    for (int d = 0; d < kDepths; ++d) both.hits[d] += b.hits[d];
    return both;
  }

  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, Shared& shared, Own& own) const {
    if constexpr (phase == 0) {
      own.value = {};
      for (int64_t row = lane.thread; row < count; row += kThreads) {
        own.value = Combine(own.value, rows[row]);
      }
    } else {
      if (lane.thread == 0) *sums = adds ? Combine(*sums, shared.total) : shared.total;
    }
  }
};

}  // namespace tessera::cuda

#endif  // TESSERA_KERNELS_CUDA_LOSS_KERNELS_H_
