#include "worker/model/activation_stages.h"

#include "common/base/check.h"

namespace tessera {

void ReluStage::Forward(int64_t rows, const float* x, float* y) {
  backend_.activation().Relu(rows * plan_.inputs, x, y);
}

void ReluStage::Backward(int64_t rows, const float*, const float* y, const float* dy,
                         const StageGradients&, float* dx) {
  if (dx != nullptr) backend_.activation().ReluBackward(rows * plan_.inputs, y, dy, dx);
}

void ReluStage::Evaluate(int64_t rows, const float* x, const float*, float* y) {
  backend_.activation().Relu(rows * plan_.inputs, x, y);
}

void DropoutStage::Drop(int64_t rows, const float* from, float* to) {
  backend_.activation().Dropout({rows, plan_.inputs}, key_, static_cast<uint64_t>(plan_.layer),
                                plan_.probability, from, to);
}

void DropoutStage::Forward(int64_t rows, const float* x, float* y) { Drop(rows, x, y); }

void DropoutStage::Backward(int64_t rows, const float*, const float*, const float* dy,
                            const StageGradients&, float* dx) {
  if (dx != nullptr) Drop(rows, dy, dx);
}

void DropoutStage::Evaluate(int64_t, const float* x, const float*, float* y) {
  TESSERA_CHECK(x == y);
}

}  // namespace tessera
