// One layer at work (or a batch norm with the relu behind it), between the activations before and
// after it.
#ifndef TESSERA_WORKER_MODEL_STAGE_H_
#define TESSERA_WORKER_MODEL_STAGE_H_

#include <cstdint>

#include "kernels/bf16.h"
#include "kernels/shape.h"
#include "kernels/write_mode.h"

namespace tessera {

// Device addresses of a layer's parameters; null where it has none.
struct StageParameters {
  const float* weight = nullptr;
  const float* bias = nullptr;
};

// Where the gradients of the same go; null: that of a product is not wanted now.
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

// x is [rows, inputs], y [rows, outputs], in the backend's memory. Only queues kernels; failures
// surface in Backend::Finish. What a stage must remember between Forward and Backward it allocates
// when it is made.
class Stage {
 public:
  virtual ~Stage() = default;

  // In training. y may be x where the plan says forward_in_place.
  virtual void Forward(int64_t rows, const float* x, float* y) = 0;

  // Before Forward, where its weight may have moved: makes a rounded copy of it if the stage computes with
  // one. rounded_weight is where that lies, or null.
  virtual void RoundWeight() {}
  virtual Bf16* rounded_weight() const { return nullptr; }

  // Follows Forward of the same step, with the same rows; x and y hold what they held then (y may have been
  // overwritten by an elementwise stage behind this one). Writes the gradients of the stage's parameters to
  // `to`, and overwrites dx unless it is null. dx may be dy where the plan says backward_in_place.
  virtual void Backward(int64_t rows, const float* x, const float* y, const float* dy,
                        const StageGradients& to, float* dx) = 0;

  // Of a stage whose weight's gradient is a product in bf16. Behind Backward of so many rows, which wrote no such
  // gradient, and before any other stage's: dy lies where theirs will. WeightGradient writes it after all.
  virtual WeightProduct weight_product(int64_t rows) const { return {}; }
  virtual void WeightGradient(int64_t rows, const StageGradients& to) {}

  // In evaluation, with the stage's own constants. Dropout wants y to be x (and leaves it alone), other
  // elementwise stages take either, the rest want it apart from x.
  virtual void Evaluate(int64_t rows, const float* x, const float* constants, float* y) = 0;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_STAGE_H_
