// Losses: value, gradient and what evaluation counts, in one pass over the logits [rows, outputs].
#ifndef TESSERA_KERNELS_LOSS_H_
#define TESSERA_KERNELS_LOSS_H_

#include <array>
#include <cstdint>

#include "kernels/shape.h"
#include "kernels/write_mode.h"

namespace tessera {

// How many of the first predictions precision@k looks at. Equal logits rank by index; a NaN is
// never among the first predictions and makes no row correct.
constexpr std::array<int, 3> kPrecisionDepths = {1, 3, 5};

// Rows with one label each are also counted where it is among so many first predictions.
constexpr int kTopDepth = 10;

// Over the rows of one call, or of several that add up. Lies in device memory.
struct LossSums {
  double loss = 0;
  int64_t correct = 0;
  // Labels that are among the first 1, 3 and 5 predictions.
  int64_t hits[kPrecisionDepths.size()] = {};
  // Rows whose label is among the first kTopDepth predictions; 0 where rows have targets.
  int64_t top_hits = 0;
};

// What the rows should be: `labels` [rows], or `targets` [rows, outputs] (not for softmax). Exactly one.
struct LossTargets {
  const int32_t* labels = nullptr;
  const float* targets = nullptr;
  // Softmax alone: so much of each row's target goes to all outputs evenly, and the rest to the label.
  float smoothing = 0;
};

// How the rows of a call belong to a minibatch that is computed in pieces.
struct LossPiece {
  int64_t minibatch_rows = 0;              // 0: the call's rows are all of it
  WriteMode sums = WriteMode::kOverwrite;  // kAdd: the call's come on top of what is there

  // What one of the call's `rows` rows counts in the minibatch's mean.
  float ShareOf(int64_t rows) const {
    return 1.0f / static_cast<float>(minibatch_rows > 0 ? minibatch_rows : rows);
  }
};

// Gradients are of the mean over the minibatch.
class LossKernel {
 public:
  virtual ~LossKernel() = default;

  // Per row: log(sum_j exp(z_j)) - sum_j t_j z_j, shifted by the largest logit. Labels: in [0, outputs). Without
  // smoothing t is onehot(label), else (1 - smoothing) onehot(label) + smoothing / outputs.
  //   gradient = (softmax(z) - t) / minibatch_rows, unless it is null; it may be the logits
  //   correct: the label is the first prediction
  virtual void SoftmaxCrossEntropy(const MatrixShape& shape, const float* logits,
                                   const LossTargets& targets, const LossPiece& piece,
                                   float* gradient, LossSums* sums) = 0;

  // Per row: sum_j log(1 + exp(z_j)) - t_j z_j. A label stands for the target that is 1 there and 0
  // elsewhere; with one output it is the target itself, 0 or 1.
  //   gradient = (sigmoid(z) - t) / minibatch_rows, unless it is null; it may be the logits
  //   correct: with one output, z > 0 just where t > 0.5; with more, the first prediction has
  //   t > 0.5
  virtual void SigmoidCrossEntropy(const MatrixShape& shape, const float* logits,
                                   const LossTargets& targets, const LossPiece& piece,
                                   float* gradient, LossSums* sums) = 0;

  // Per row: sum_j (z_j - t_j)^2 / outputs. A label stands for onehot(label); with one output, for the number that
  // it is.
  //   gradient = 2 (z - t) / (outputs minibatch_rows), unless it is null; it may be the logits
  //   correct, hits: of labels, with more than one output, as for softmax; else 0, as numbers are no predictions
  virtual void MeanSquaredError(const MatrixShape& shape, const float* logits,
                                const LossTargets& targets, const LossPiece& piece, float* gradient,
                                LossSums* sums) = 0;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_LOSS_H_
