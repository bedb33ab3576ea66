#include "worker/model/activation_stages.h"

#include "common/base/check.h"

namespace tessera {

void ReluStage::Forward(const StepKey&, int64_t rows, const float* x, float* y) {
  backend_.activation().Relu(rows * plan_.inputs, x, y);
}

void ReluStage::Backward(const StepKey&, int64_t rows, const float*, const float* y,
                         const float* dy, float* dx) {
  if (dx != nullptr) backend_.activation().ReluBackward(rows * plan_.inputs, y, dy, dx);
}

void ReluStage::Evaluate(int64_t rows, const float* x, const float*, float* y) {
  backend_.activation().Relu(rows * plan_.inputs, x, y);
}

void DropoutStage::Drop(const StepKey& key, int64_t rows, const float* from, float* to) {
  const DropoutKey dropout{key.seed, key.step, key.rank, static_cast<uint64_t>(plan_.layer)};
  backend_.activation().Dropout(rows * plan_.inputs, dropout, plan_.probability, from, to);
}

void DropoutStage::Forward(const StepKey& key, int64_t rows, const float* x, float* y) {
  Drop(key, rows, x, y);
}

void DropoutStage::Backward(const StepKey& key, int64_t rows, const float*, const float*,
                            const float* dy, float* dx) {
  if (dx != nullptr) Drop(key, rows, dy, dx);
}

void DropoutStage::Evaluate(int64_t, const float* x, const float*, float* y) {
  TESSERA_CHECK(x == y);
}

}  // namespace tessera
