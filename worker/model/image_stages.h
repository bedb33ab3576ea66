// The stages of images that learn nothing: pooling, and the change of how images lie.
#ifndef TESSERA_WORKER_MODEL_IMAGE_STAGES_H_
#define TESSERA_WORKER_MODEL_IMAGE_STAGES_H_

#include "kernels/backend.h"
#include "worker/model/stage.h"
#include "worker/model/stage_kind.h"

namespace tessera {

StageKind MaxPoolStageKind();
StageKind AveragePoolStageKind();
// Images from [channels, height, width] to [height, width, channels], and back. No layer of a job is one.
const StageKind& ToChannelsLastKind();
const StageKind& FromChannelsLastKind();

class MaxPoolStage final : public Stage {
 public:
  MaxPoolStage(const StagePlan& plan, const StageOptions&, Backend& backend)
      : map_(plan.map), backend_(backend) {}

  void Forward(int64_t rows, const StageInputs& x, float* y) override;
  void Backward(int64_t rows, const StageInputs& x, const float* y, const float* dy,
                const StageGradients& to, const InputGradients& dx) override;
  void Evaluate(int64_t rows, const StageInputs& x, const float* constants, float* y) override;

 private:
  const ImageMap map_;
  Backend& backend_;
};

class AveragePoolStage final : public Stage {
 public:
  AveragePoolStage(const StagePlan& plan, const StageOptions&, Backend& backend)
      : map_(plan.map), backend_(backend) {}

  void Forward(int64_t rows, const StageInputs& x, float* y) override;
  void Backward(int64_t rows, const StageInputs& x, const float* y, const float* dy,
                const StageGradients& to, const InputGradients& dx) override;
  void Evaluate(int64_t rows, const StageInputs& x, const float* constants, float* y) override;

 private:
  const ImageMap map_;
  Backend& backend_;
};

// Each row is a matrix of this shape, which it transposes.
class TransposeStage final : public Stage {
 public:
  TransposeStage(const MatrixShape& shape, Backend& backend) : shape_(shape), backend_(backend) {}

  void Forward(int64_t rows, const StageInputs& x, float* y) override;
  void Backward(int64_t rows, const StageInputs& x, const float* y, const float* dy,
                const StageGradients& to, const InputGradients& dx) override;
  void Evaluate(int64_t rows, const StageInputs& x, const float* constants, float* y) override;

 private:
  const MatrixShape shape_;
  Backend& backend_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_IMAGE_STAGES_H_
