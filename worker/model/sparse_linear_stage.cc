#include "worker/model/sparse_linear_stage.h"

namespace tessera {

void SparseLinearStage::Forward(int64_t rows, const SparseRows& x, float* y) {
  backend_.sparse_linear().Forward(Shape(rows), x, parameters_.weight, parameters_.bias, y);
}

void SparseLinearStage::Backward(int64_t rows, const SparseRows& x, const float* dy,
                                 const StageGradients& to) {
  BackwardBias(rows, dy, to);
  // The kernel notes the columns that it has written, and clears only those the next time: a dense gradient is long.
  backend_.sparse_linear().WeightGradient(Shape(rows), x, dy, to.mode, &touched_, to.weight);
}

void SparseLinearStage::BackwardBias(int64_t rows, const float* dy, const StageGradients& to) {
  if (to.bias == nullptr) return;
  backend_.vector().ColumnSums({rows, plan_.outputs}, dy, to.mode, to.bias);
}

void SparseLinearStage::AddWeightGradient(int64_t rows, const SparseRows& x, const float* dy,
                                          float a, float* weight) {
  backend_.sparse_linear().AddWeightGradient(Shape(rows), x, dy, a, weight);
}

}  // namespace tessera
