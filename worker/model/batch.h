// Rows that a network computes on, and what it says about them.
#ifndef TESSERA_WORKER_MODEL_BATCH_H_
#define TESSERA_WORKER_MODEL_BATCH_H_

#include <array>
#include <cstdint>
#include <optional>

#include "kernels/sparse_linear.h"

namespace tessera {

// Row-major views into the caller's memory.
struct Batch {
  int64_t rows = 0;
  // [rows, inputs of the model], tokens as whole numbers; null where the network reads sparse rows
  const float* inputs = nullptr;
  // What the rows are; either one, or both null where only inputs are read. Softmax wants labels [rows, places] in [0,
  // outputs), where only sequences have more than one place. Sigmoid takes labels too (0 or 1 with a single output), or
  // targets [rows, outputs]. The squared error takes labels where there are several outputs, or targets.
  const int32_t* labels = nullptr;
  const float* targets = nullptr;
  // The inputs of a network that reads sparse rows.
  SparseRows sparse{};
  // In training, of a piece of a minibatch: the minibatch's rows before these, and all of its rows; 0:
  // these are all.
  int64_t first_row = 0;
  int64_t minibatch_rows = 0;
  // In training of a model's back, where several batches make one update and no parameter moves in between.
  // `adds`: the gradients are added to those that the batches before have left, as floats. `more`: the next
  // batch adds; until then no work follows the gradients, nor do they come to the host. Each batch has its
  // own mean over rows, statistics and key.
  bool adds = false;
  bool more = false;
  // In training: the caller changes the gradients before anybody else sees them, so that no work follows them, nor do
  // they come to the host before NetworkArrays::FetchGradients.
  bool holds_gradients = false;

  int64_t whole_rows() const { return minibatch_rows > 0 ? minibatch_rows : rows; }
  bool is_first() const { return first_row == 0; }
  bool is_last() const { return first_row + rows == whole_rows(); }
  bool ends_gradients() const { return is_last() && !more && !holds_gradients; }
};

// Where a batch may be written, so that it need not be copied; null: anywhere.
struct BatchPlace {
  float* inputs = nullptr;
  int32_t* labels = nullptr;
  float* targets = nullptr;
};

// Names one training step, for everything random in it.
struct StepKey {
  uint64_t seed = 0;
  uint64_t step = 0;
  uint64_t rank = 0;
};

// What one training step tells: the mean loss of its rows, and how many were predicted right before the
// update.
struct LossAndCount {
  double loss = 0;
  int64_t correct = 0;
  // Predictions: of sequences there is one in each place.
  int64_t rows = 0;
};

// What evaluated rows tell: sums, so that the parts of a test set add up.
struct Scores {
  double loss_sum = 0;
  // Softmax and single-label sigmoid: the label is the first prediction. Sigmoid with one output:
  // the right side of 0.5. Multi-label: the first prediction is one of the labels.
  int64_t correct = 0;
  // Predictions: of sequences there is one in each place.
  int64_t rows = 0;
  // Labels among the first 1, 3 and 5 predictions.
  std::array<int64_t, 3> precision_hits = {};
  // Rows whose label is among the first 10 predictions, where rows have one label each.
  int64_t top_hits = 0;
  // Whether the hits were counted; a caller's own model tells no more than its score.
  bool counts_hits = true;
  // Over the rows, of what a caller's own model calls its score, in place of `correct` and hits.
  std::optional<double> score_sum = std::nullopt;

  Scores& operator+=(const Scores& part) {
    loss_sum += part.loss_sum;
    correct += part.correct;
    rows += part.rows;
    for (size_t i = 0; i < precision_hits.size(); ++i) precision_hits[i] += part.precision_hits[i];
    top_hits += part.top_hits;
    return *this;
  }
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_BATCH_H_
