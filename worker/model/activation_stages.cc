#include "worker/model/activation_stages.h"

#include "common/base/check.h"

namespace tessera {
namespace {

// Both write over what they read, forward and backward.
template <typename T>
StageKind InPlace(v1::Layer::KindCase layer) {
  StageKind kind{layer, MakeStage<T>};
  kind.forward_in_place = true;
  kind.backward_in_place = true;
  kind.backward_reads_x = false;
  kind.keeps_signs = true;
  return kind;
}

}  // namespace

StageKind ReluStageKind() {
  StageKind kind = InPlace<ReluStage>(v1::Layer::kRelu);
  kind.reads_signs_of_y = true;
  return kind;
}

StageKind DropoutStageKind() {
  StageKind kind = InPlace<DropoutStage>(v1::Layer::kDropout);
  kind.draws = true;
  kind.backward_reads_y = false;
  return kind;
}

void ReluStage::Forward(int64_t rows, const StageInputs& x, float* y) {
  backend_.activation().Relu(rows * inputs_, x[0], y);
}

void ReluStage::Backward(int64_t rows, const StageInputs&, const float* y, const float* dy,
                         const StageGradients&, const InputGradients& dx) {
  if (dx[0] != nullptr) backend_.activation().ReluBackward(rows * inputs_, y, dy, dx[0]);
}

void ReluStage::Evaluate(int64_t rows, const StageInputs& x, const float*, float* y) {
  backend_.activation().Relu(rows * inputs_, x[0], y);
}

void ReluStage::EvaluateColumns(const UnitColumns& columns, const float* x, const float*,
                                float* y) {
  backend_.activation().Relu(columns.matrix.size(), x, y);
}

void DropoutStage::Drop(int64_t rows, const float* from, float* to) {
  backend_.activation().Dropout({rows, inputs_}, key_, layer_, probability_, from, to);
}

void DropoutStage::Forward(int64_t rows, const StageInputs& x, float* y) { Drop(rows, x[0], y); }

void DropoutStage::Backward(int64_t rows, const StageInputs&, const float*, const float* dy,
                            const StageGradients&, const InputGradients& dx) {
  if (dx[0] != nullptr) Drop(rows, dy, dx[0]);
}

void DropoutStage::Evaluate(int64_t, const StageInputs&, const float*, float*) {
  TESSERA_CHECK(false);
}

}  // namespace tessera
