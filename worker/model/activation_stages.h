// The stages that look at one value at a time: relu and dropout. They keep nothing between passes.
#ifndef TESSERA_WORKER_MODEL_ACTIVATION_STAGES_H_
#define TESSERA_WORKER_MODEL_ACTIVATION_STAGES_H_

#include "kernels/backend.h"
#include "worker/model/plan.h"
#include "worker/model/stage.h"

namespace tessera {

class ReluStage final : public Stage {
 public:
  ReluStage(const StagePlan& plan, Backend& backend) : plan_(plan), backend_(backend) {}

  void Forward(int64_t rows, const float* x, float* y) override;
  void Backward(int64_t rows, const float* x, const float* y, const float* dy,
                const StageGradients& to, float* dx) override;
  void Evaluate(int64_t rows, const float* x, const float* constants, float* y) override;

 private:
  const StagePlan plan_;
  Backend& backend_;
};

// Off in evaluation.
class DropoutStage final : public Stage {
 public:
  // `key` names the step under way, in the backend's memory; where it only evaluates there is none.
  DropoutStage(const StagePlan& plan, const DropoutKey* key, Backend& backend)
      : plan_(plan), key_(key), backend_(backend) {}

  void Forward(int64_t rows, const float* x, float* y) override;
  void Backward(int64_t rows, const float* x, const float* y, const float* dy,
                const StageGradients& to, float* dx) override;
  void Evaluate(int64_t rows, const float* x, const float* constants, float* y) override;

 private:
  void Drop(int64_t rows, const float* from, float* to);

  const StagePlan plan_;
  const DropoutKey* const key_;
  Backend& backend_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_ACTIVATION_STAGES_H_
