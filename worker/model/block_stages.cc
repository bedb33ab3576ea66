#include "worker/model/block_stages.h"

namespace tessera {
namespace {

// The gradient of each input is a part of the output's, or all of it.
StageKind Linear(StageKind kind) {
  kind.backward_reads_x = false;
  kind.backward_reads_y = false;
  return kind;
}

}  // namespace

StageKind SumStageKind() {
  StageKind kind = Linear({v1::Layer::kResidual, MakeStage<SumStage>});
  kind.forward_in_place = true;
  kind.backward_in_place = true;
  return kind;
}

StageKind ConcatStageKind() { return Linear({v1::Layer::kConcat, MakeStage<ConcatStage>}); }

void SumStage::Forward(int64_t rows, const StageInputs& x, float* y) {
  backend_.vector().Add(rows * width_, x[0], x[1], y);
}

void SumStage::Backward(int64_t rows, const StageInputs&, const float*, const float* dy,
                        const StageGradients&, const InputGradients& dx) {
  for (float* const each : dx) {
    // The gradient of a sum is that of each part: in place it is already there.
    if (each == nullptr || each == dy) continue;
    backend_.vector().CopyBlock({rows, width_}, dy, width_, each, width_);
  }
}

void SumStage::Evaluate(int64_t rows, const StageInputs& x, const float*, float* y) {
  Forward(rows, x, y);
}

void ConcatStage::Forward(int64_t rows, const StageInputs& x, float* y) {
  for (size_t k = 0; k < x.size(); ++k) {
    const int64_t part = part_channels_[k];
    // Channels lie innermost, so that each place of the output takes a row of each part.
    backend_.vector().CopyBlock({rows * positions_, part}, x[k], part, y, channels_);
    y += part;
  }
}

void ConcatStage::Backward(int64_t rows, const StageInputs&, const float*, const float* dy,
                           const StageGradients&, const InputGradients& dx) {
  for (size_t k = 0; k < dx.size(); ++k) {
    const int64_t part = part_channels_[k];
    if (dx[k] != nullptr) {
      backend_.vector().CopyBlock({rows * positions_, part}, dy, channels_, dx[k], part);
    }
    dy += part;
  }
}

void ConcatStage::Evaluate(int64_t rows, const StageInputs& x, const float*, float* y) {
  Forward(rows, x, y);
}

}  // namespace tessera
