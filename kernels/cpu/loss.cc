#include "kernels/cpu/loss.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/base/vector_clones.h"
#include "kernels/exponential.h"

namespace tessera {
namespace {

// Values that a row is worked on at a time, and the lanes of its f64 sum.
constexpr int64_t kTile = 64;
constexpr int kFirstMax = kPrecisionDepths.back();

// The indices of a row's largest logits, the largest first.
struct First {
  float value[kFirstMax];
  int64_t index[kFirstMax];
  int count = 0;

  void Offer(float z, int64_t at) {
    int place = count;
    while (place > 0 && z > value[place - 1]) --place;
    // A NaN has no rank. Of equal logits the one with the lower index stays in front.
    if (place == kFirstMax || std::isnan(z)) return;
    count = std::min(count + 1, kFirstMax);
    for (int i = count - 1; i > place; --i) {
      value[i] = value[i - 1];
      index[i] = index[i - 1];
    }
    value[place] = z;
    index[place] = at;
  }
};

TESSERA_VECTOR_CLONES float Largest(int64_t n, const float* z) {
  float largest = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : largest)
  for (int64_t i = 0; i < n; ++i) largest = z[i] > largest ? z[i] : largest;
  return largest;
}

// The first largest logits of a row, in one pass.
First FirstOf(int64_t n, const float* z) {
  First first;
  for (int64_t begin = 0; begin < n; begin += kTile) {
    const int64_t end = std::min(n, begin + kTile);
    // Most tiles of a long row hold nothing new.
    if (first.count == kFirstMax &&
        !(Largest(end - begin, z + begin) > first.value[kFirstMax - 1])) {
      continue;
    }
    for (int64_t i = begin; i < end; ++i) first.Offer(z[i], i);
  }
  return first;
}

// The sum over lanes, in their order, so that it does not depend on the register's width.
double SumOf(const double* lanes) {
  double sum = 0;
  for (int64_t i = 0; i < kTile; ++i) sum += lanes[i];
  return sum;
}

// No lane's product is above 2^512 after so many tiles.
constexpr int64_t kTilesMax = 512;

TESSERA_VECTOR_CLONES void MovePowers(int64_t lanes, double* sums, double* products) {
#pragma omp simd
  for (int64_t i = 0; i < lanes; ++i) MovePower(&sums[i], &products[i]);
}

// Returns the sum of exp(z - shift). Writes the terms too, unless `terms` is null.
TESSERA_VECTOR_CLONES double ExpSum(int64_t n, const float* z, float shift, float* terms) {
  double lanes[kTile] = {};
  for (int64_t begin = 0; begin < n; begin += kTile) {
    const int64_t count = std::min(kTile, n - begin);
    float term[kTile];
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
      term[i] = FastExp(z[begin + i] - shift);
      lanes[i] += static_cast<double>(term[i]);
    }
    if (terms != nullptr) std::copy_n(term, count, terms + begin);
  }
  return SumOf(lanes);
}

TESSERA_VECTOR_CLONES void Scale(int64_t n, float factor, float* x) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

// The sum of log(1 + exp(z)), and share * sigmoid(z) unless `gradient` is null. Each term is max(z, 0) + log(1 + e)
// with e = exp(-|z|) in (0, 1], so nothing overflows; the logarithms are taken of a product, once per row.
TESSERA_VECTOR_CLONES double SoftplusSum(int64_t n, const float* z, float share, float* gradient) {
  double sums[kTile] = {}, products[kTile];
  const int64_t lanes = std::min(kTile, n);
  std::fill_n(products, lanes, 1.0);
  for (int64_t begin = 0; begin < n; begin += kTile) {
    const int64_t count = std::min(kTile, n - begin);
    float slope[kTile];
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
      const float value = z[begin + i];
      // With e = exp(-|z|), sigmoid(z) is 1 / (1 + e) for z >= 0, and e / (1 + e) below.
      const float e = FastExp(-std::fabs(value));
      AddSoftplus(value, e, &sums[i], &products[i]);
      slope[i] = share * ((value < 0.0f ? e : 1.0f) / (1.0f + e));
    }
    if (gradient != nullptr) std::copy_n(slope, count, gradient + begin);
    if (begin / kTile % kTilesMax == kTilesMax - 1) MovePowers(lanes, sums, products);
  }
  MovePowers(lanes, sums, products);
  double product = 1;
  for (int64_t i = 0; i < lanes; ++i) product *= products[i];
  return SumOf(sums) + std::log(product);
}

// The sum of t z. A target of 0 takes no part, even where z is infinite.
TESSERA_VECTOR_CLONES double TargetSum(int64_t n, const float* z, const float* t) {
  double lanes[kTile] = {};
  for (int64_t begin = 0; begin < n; begin += kTile) {
    const int64_t count = std::min(kTile, n - begin);
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
      const float target = t[begin + i];
      lanes[i] +=
          target == 0.0f ? 0.0 : static_cast<double>(target) * static_cast<double>(z[begin + i]);
    }
  }
  return SumOf(lanes);
}

TESSERA_VECTOR_CLONES void SubtractShare(int64_t n, float share, const float* t, float* gradient) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) gradient[i] -= share * t[i];
}

// The sum of z - shift.
TESSERA_VECTOR_CLONES double ShiftedSum(int64_t n, const float* z, float shift) {
  double lanes[kTile] = {};
  for (int64_t begin = 0; begin < n; begin += kTile) {
    const int64_t count = std::min(kTile, n - begin);
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
      lanes[i] += static_cast<double>(z[begin + i]) - static_cast<double>(shift);
    }
  }
  return SumOf(lanes);
}

TESSERA_VECTOR_CLONES void Subtract(int64_t n, float less, float* x) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) x[i] -= less;
}

// The sum of (z - t)^2, and factor * (z - t) unless `gradient` is null. A null `t` is 0 everywhere.
TESSERA_VECTOR_CLONES double SquareSum(int64_t n, const float* z, const float* t, float factor,
                                       float* gradient) {
  double lanes[kTile] = {};
  for (int64_t begin = 0; begin < n; begin += kTile) {
    const int64_t count = std::min(kTile, n - begin);
    float distance[kTile];
    for (int64_t i = 0; i < count; ++i) {
      distance[i] = z[begin + i] - (t == nullptr ? 0.0f : t[begin + i]);
    }
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
      lanes[i] += static_cast<double>(distance[i]) * static_cast<double>(distance[i]);
      distance[i] *= factor;
    }
    if (gradient != nullptr) std::copy_n(distance, count, gradient + begin);
  }
  return SumOf(lanes);
}

// How many logits rank before that of `label`.
TESSERA_VECTOR_CLONES int64_t RankOf(int64_t n, const float* z, int64_t label) {
  const float own = z[label];
  int64_t before = 0;
  for (int64_t begin = 0; begin < n; begin += kTile) {
    const int64_t count = std::min(kTile, n - begin);
    // Equal logits rank by index.
    const int64_t ahead = std::clamp<int64_t>(label - begin, 0, count);
    int32_t more = 0;
#pragma omp simd reduction(+ : more)
    for (int64_t i = 0; i < count; ++i) more += z[begin + i] > own ? 1 : 0;
    before += more;
    more = 0;
#pragma omp simd reduction(+ : more)
    for (int64_t i = 0; i < ahead; ++i) more += z[begin + i] == own ? 1 : 0;
    before += more;
  }
  return before;
}

// Counts the row of a single label.
void CountLabel(int64_t n, const float* z, int64_t label, LossSums* sums) {
  // A row whose label's logit is NaN counts as a miss at every depth.
  if (std::isnan(z[label])) return;
  const int64_t before = RankOf(n, z, label);
  for (size_t depth = 0; depth < kPrecisionDepths.size(); ++depth) {
    sums->hits[depth] = before < kPrecisionDepths[depth] ? 1 : 0;
  }
  sums->top_hits = before < kTopDepth ? 1 : 0;
}

template <typename IsLabel>
void CountHits(const First& first, const IsLabel& is_label, LossSums* sums) {
  for (size_t depth = 0; depth < kPrecisionDepths.size(); ++depth) {
    for (int i = 0; i < std::min(first.count, kPrecisionDepths[depth]); ++i) {
      sums->hits[depth] += is_label(first.index[i]) ? 1 : 0;
    }
  }
}

}  // namespace

template <typename F>
void CpuLoss::ForRows(const MatrixShape& shape, WriteMode mode, LossSums* sums, const F& row_loss) {
  // Every row has sums of its own, which one thread adds up in the order of rows: the result does not depend on the
  // number of threads.
  rows_.assign(shape.rows, LossSums());
  threads_.Split(shape.rows, 8 * shape.columns, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) row_loss(row, &rows_[row]);
  });
  if (mode == WriteMode::kOverwrite) *sums = LossSums();
  for (const LossSums& row : rows_) {
    sums->loss += row.loss;
    sums->correct += row.correct;
    for (size_t depth = 0; depth < kPrecisionDepths.size(); ++depth) {
      sums->hits[depth] += row.hits[depth];
    }
    sums->top_hits += row.top_hits;
  }
}

void CpuLoss::SoftmaxCrossEntropy(const MatrixShape& shape, const float* logits,
                                  const LossTargets& targets, const LossPiece& piece,
                                  float* gradient, LossSums* sums) {
  const int64_t n = shape.columns;
  const float share = piece.ShareOf(shape.rows);
  const double even = targets.smoothing;  // the part that goes to all
  ForRows(shape, piece.sums, sums, [&](int64_t row, LossSums* out) {
    const float* z = logits + row * n;
    const int64_t label = targets.labels[row];
    CountLabel(n, z, label, out);
    out->correct = out->hits[0];
    // The largest logit is subtracted, so that no exponential overflows and the sum is at least 1.
    const float shift = Largest(n, z);
    double own = static_cast<double>(z[label]) - static_cast<double>(shift);
    if (even != 0) {
      // Label smoothing: the label has 1 - smoothing of the target, and all n classes share the rest evenly.
      own = (1 - even) * own + even / static_cast<double>(n) * ShiftedSum(n, z, shift);
    }
    float* g = gradient == nullptr ? nullptr : gradient + row * n;
    const double sum = ExpSum(n, z, shift, g);
    out->loss = std::log(sum) - own;
    if (g == nullptr) return;
    // The gradient of a row is share * (softmax(z) - target); the terms that ExpSum left in g become the softmax here.
    Scale(n, static_cast<float>(static_cast<double>(share) / sum), g);
    if (even == 0) {
      g[label] -= share;
      return;
    }
    Subtract(n, static_cast<float>(share * even / static_cast<double>(n)), g);
    g[label] -= static_cast<float>(share * (1 - even));
  });
}

void CpuLoss::SigmoidCrossEntropy(const MatrixShape& shape, const float* logits,
                                  const LossTargets& targets, const LossPiece& piece,
                                  float* gradient, LossSums* sums) {
  const int64_t n = shape.columns;
  const float share = piece.ShareOf(shape.rows);
  ForRows(shape, piece.sums, sums, [&](int64_t row, LossSums* out) {
    const float* z = logits + row * n;
    const float* t = targets.targets == nullptr ? nullptr : targets.targets + row * n;
    // The one index whose target is 1, where there are no targets; or -1.
    const int64_t label =
        t != nullptr ? -1 : (n == 1 ? targets.labels[row] - 1 : targets.labels[row]);
    if (t != nullptr) {
      CountHits(
          FirstOf(n, z), [&](int64_t index) { return t[index] > 0.5f; }, out);
    } else if (label >= 0) {
      CountLabel(n, z, label, out);
    }
    out->correct = out->hits[0] > 0;
    if (n == 1) out->correct = (t != nullptr ? t[0] > 0.5f : label == 0) ? z[0] > 0 : z[0] <= 0;
    // The gradient may lie where the logits are, so those are read first.
    const double own = t != nullptr ? TargetSum(n, z, t) : (label >= 0 ? z[label] : 0.0);
    float* g = gradient == nullptr ? nullptr : gradient + row * n;
    out->loss = SoftplusSum(n, z, share, g) - own;
    if (g == nullptr) return;
    if (t != nullptr) {
      SubtractShare(n, share, t, g);
    } else if (label >= 0) {
      g[label] -= share;
    }
  });
}

void CpuLoss::MeanSquaredError(const MatrixShape& shape, const float* logits,
                               const LossTargets& targets, const LossPiece& piece, float* gradient,
                               LossSums* sums) {
  const int64_t n = shape.columns;
  const auto outputs = static_cast<double>(n);
  const auto factor = static_cast<float>(2.0 * piece.ShareOf(shape.rows) / outputs);
  ForRows(shape, piece.sums, sums, [&](int64_t row, LossSums* out) {
    const float* z = logits + row * n;
    float* g = gradient == nullptr ? nullptr : gradient + row * n;
    if (targets.targets != nullptr) {
      out->loss = SquareSum(n, z, targets.targets + row * n, factor, g) / outputs;
      return;
    }
    const int32_t label = targets.labels[row];
    const auto number = static_cast<float>(label);
    if (n == 1) {
      out->loss = SquareSum(1, z, &number, factor, g);
      return;
    }
    CountLabel(n, z, label, out);
    out->correct = out->hits[0];
    // The target is 0 in front of the label and behind it.
    const int64_t behind = label + 1;
    const float one = 1;
    const double front = SquareSum(label, z, nullptr, factor, g);
    const double own = SquareSum(1, z + label, &one, factor, g == nullptr ? nullptr : g + label);
    const double back =
        SquareSum(n - behind, z + behind, nullptr, factor, g == nullptr ? nullptr : g + behind);
    out->loss = (front + own + back) / outputs;
  });
}

}  // namespace tessera
