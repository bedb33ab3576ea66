// The stages of images that learn nothing: pooling, and the change of how images lie.
#ifndef TESSERA_WORKER_MODEL_IMAGE_STAGES_H_
#define TESSERA_WORKER_MODEL_IMAGE_STAGES_H_

#include "kernels/backend.h"
#include "worker/model/plan.h"
#include "worker/model/stage.h"

namespace tessera {

class MaxPoolStage final : public Stage {
 public:
  MaxPoolStage(const StagePlan& plan, Backend& backend) : map_(plan.map), backend_(backend) {}

  void Forward(int64_t rows, const float* x, float* y) override;
  void Backward(int64_t rows, const float* x, const float* y, const float* dy,
                const StageGradients& to, float* dx) override;
  void Evaluate(int64_t rows, const float* x, const float* constants, float* y) override;

 private:
  const ImageMap map_;
  Backend& backend_;
};

class AveragePoolStage final : public Stage {
 public:
  AveragePoolStage(const StagePlan& plan, Backend& backend) : map_(plan.map), backend_(backend) {}

  void Forward(int64_t rows, const float* x, float* y) override;
  void Backward(int64_t rows, const float* x, const float* y, const float* dy,
                const StageGradients& to, float* dx) override;
  void Evaluate(int64_t rows, const float* x, const float* constants, float* y) override;

 private:
  const ImageMap map_;
  Backend& backend_;
};

// Rows are matrices, which it turns round.
class TransposeStage final : public Stage {
 public:
  TransposeStage(const StagePlan& plan, Backend& backend)
      : shape_(plan.transposes), backend_(backend) {}

  void Forward(int64_t rows, const float* x, float* y) override;
  void Backward(int64_t rows, const float* x, const float* y, const float* dy,
                const StageGradients& to, float* dx) override;
  void Evaluate(int64_t rows, const float* x, const float* constants, float* y) override;

 private:
  const MatrixShape shape_;
  Backend& backend_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_IMAGE_STAGES_H_
