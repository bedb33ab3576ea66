// A first linear layer that reads sparse rows: y = x W^T + b at the price of the columns in use.
#ifndef TESSERA_WORKER_MODEL_SPARSE_LINEAR_STAGE_H_
#define TESSERA_WORKER_MODEL_SPARSE_LINEAR_STAGE_H_

#include <cstdint>

#include "kernels/backend.h"
#include "worker/model/stage.h"
#include "worker/model/stage_plan.h"

namespace tessera {

// Beside the other stages rather than among them: its input is no matrix, and nobody wants a
// gradient of it. Always in f32, whatever train.precision says: it is bound by memory.
//
// Either Backward is used or AddWeightGradient, not both in turn.
class SparseLinearStage {
 public:
  SparseLinearStage(const StagePlan& plan, const StageParameters& parameters, Backend& backend)
      : plan_(plan), parameters_(parameters), backend_(backend) {}

  // Used in training and in evaluation.
  void Forward(int64_t rows, const SparseRows& x, float* y);

  // The gradients of weight and bias. The weight's, always in one place, is cleared where the calls
  // before left something; other columns must be zero.
  void Backward(int64_t rows, const SparseRows& x, const float* dy, const StageGradients& to);

  // In the place of Backward: the bias's gradient only, and then weight += a * the gradient of the weight.
  void BackwardBias(int64_t rows, const float* dy, const StageGradients& to);
  void AddWeightGradient(int64_t rows, const SparseRows& x, const float* dy, float a,
                         float* weight);

 private:
  LinearShape Shape(int64_t rows) const { return {rows, plan_.inputs, plan_.outputs}; }

  const StagePlan plan_;
  const StageParameters parameters_;
  Backend& backend_;
  TouchedColumns touched_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_SPARSE_LINEAR_STAGE_H_
