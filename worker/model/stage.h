// One layer at work (or a batch norm with the relu behind it), between the activations before and
// after it.
#ifndef TESSERA_WORKER_MODEL_STAGE_H_
#define TESSERA_WORKER_MODEL_STAGE_H_

#include <cstdint>

#include "absl/types/span.h"
#include "common/base/check.h"
#include "kernels/bf16.h"
#include "kernels/shape.h"
#include "kernels/write_mode.h"

namespace tessera {

// Device addresses of a layer's parameters; null where it has none.
struct StageParameters {
  const float* weight = nullptr;
  const float* bias = nullptr;
};

// Where the gradients of a layer's parameters go; null: the gradient of a product is not wanted now.
struct StageGradients {
  float* weight = nullptr;
  float* bias = nullptr;
  WriteMode mode = WriteMode::kOverwrite;
};

// A weight's gradient as the product dy^T x that it is, of factors in device memory. x is null: it is none in bf16.
struct WeightProduct {
  LinearShape shape;
  const Bf16* x = nullptr;   // [rows, inputs]
  const Bf16* dy = nullptr;  // [rows, outputs]
};

// What a stage reads, one address for each of StagePlan::reads, and where the gradients of the same go.
using StageInputs = absl::Span<const float* const>;
using InputGradients = absl::Span<float* const>;

// Some of a stage's units, in all rows: columns [first, first + matrix.columns) of the units.
struct UnitColumns {
  MatrixShape matrix;
  int64_t first = 0;
};

// Each input is [rows, its width], y [rows, outputs], in the backend's memory. Only queues kernels; failures
// surface in Backend::Finish. What a stage must remember between Forward and Backward it allocates
// when it is made.
class Stage {
 public:
  virtual ~Stage() = default;

  // In training. y may be x[0] where the kind says forward_in_place.
  virtual void Forward(int64_t rows, const StageInputs& x, float* y) = 0;

  // Before Forward, where its weight may have moved: makes a rounded copy of it if the stage computes with
  // one. rounded_weight is where that lies, or null.
  virtual void RoundWeight() {}
  virtual Bf16* rounded_weight() const { return nullptr; }

  // Follows Forward of the same step, with the same rows; x and y hold what they held then, where the kind says that
  // they are read (y may have been overwritten by a stage behind this one that works in place). Writes the gradients
  // of the stage's parameters to `to`, and overwrites each of dx that is not null. dx[0] may be dy where the kind says
  // backward_in_place.
  virtual void Backward(int64_t rows, const StageInputs& x, const float* y, const float* dy,
                        const StageGradients& to, const InputGradients& dx) = 0;

  // For a stage whose weight's gradient is a product in bf16: that product, behind Backward of so many rows, which
  // wrote no such gradient, and before any other stage's Backward, whose dy will lie where this one's does.
  // WeightGradient writes the gradient after all.
  virtual WeightProduct weight_product(int64_t rows) const { return {}; }
  virtual void WeightGradient(int64_t rows, const StageGradients& to) {}

  // In evaluation, with the stage's own constants. y may be x[0] where the stage is elementwise or the kind says
  // forward_in_place; where it is off in
  // evaluation it is not called. Other stages want y apart from x.
  virtual void Evaluate(int64_t rows, const StageInputs& x, const float* constants, float* y) = 0;

  // What only elementwise stages have, which work on some of their units at a time as well.
  virtual void EvaluateColumns(const UnitColumns& columns, const float* x, const float* constants,
                               float* y) {
    TESSERA_CHECK(false);
  }
  // What only stages with constants have: adds these rows of a sample to the sums of these units (BatchNormKernel), or
  // begins them; and writes the units' constants, among those of all units of the stage, once the sums are those of
  // so many rows.
  virtual void AddToSums(const UnitColumns& columns, bool is_first, const float* x, double* sums) {
    TESSERA_CHECK(false);
  }
  virtual void FindConstants(const UnitColumns& columns, const double* sums, float* constants) {
    TESSERA_CHECK(false);
  }
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_STAGE_H_
