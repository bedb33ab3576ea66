// The stages that look at one value at a time: relu, other functions, and dropout. They keep nothing between passes.
#ifndef TESSERA_WORKER_MODEL_ACTIVATION_STAGES_H_
#define TESSERA_WORKER_MODEL_ACTIVATION_STAGES_H_

#include <vector>

#include "kernels/backend.h"
#include "worker/model/stage.h"
#include "worker/model/stage_kind.h"

namespace tessera {

StageKind ReluStageKind();
StageKind DropoutStageKind();
// One for each kind of layer that computes another function of each value, as gelu.
std::vector<StageKind> FunctionStageKinds();

class ReluStage final : public Stage {
 public:
  ReluStage(const StagePlan& plan, const StageOptions&, Backend& backend)
      : inputs_(plan.inputs), backend_(backend) {}

  void Forward(int64_t rows, const StageInputs& x, float* y) override;
  void Backward(int64_t rows, const StageInputs& x, const float* y, const float* dy,
                const StageGradients& to, const InputGradients& dx) override;
  void Evaluate(int64_t rows, const StageInputs& x, const float* constants, float* y) override;
  void EvaluateColumns(const UnitColumns& columns, const float* x, const float* constants,
                       float* y) override;

 private:
  const int64_t inputs_;
  Backend& backend_;
};

class FunctionStage final : public Stage {
 public:
  FunctionStage(const StagePlan& plan, const StageOptions&, Backend& backend);

  void Forward(int64_t rows, const StageInputs& x, float* y) override;
  void Backward(int64_t rows, const StageInputs& x, const float* y, const float* dy,
                const StageGradients& to, const InputGradients& dx) override;
  void Evaluate(int64_t rows, const StageInputs& x, const float* constants, float* y) override;
  void EvaluateColumns(const UnitColumns& columns, const float* x, const float* constants,
                       float* y) override;

 private:
  const int64_t inputs_;
  const ActivationFunction function_;
  Backend& backend_;
};

// Drops values in training, and is off in evaluation.
class DropoutStage final : public Stage {
 public:
  // `options.dropout` names the step under way, in the backend's memory; it is not used in evaluation.
  DropoutStage(const StagePlan& plan, const StageOptions& options, Backend& backend)
      : inputs_(plan.inputs),
        layer_(static_cast<uint64_t>(plan.layer)),
        probability_(plan.settings.dropout().probability()),
        key_(options.dropout),
        backend_(backend) {}

  void Forward(int64_t rows, const StageInputs& x, float* y) override;
  void Backward(int64_t rows, const StageInputs& x, const float* y, const float* dy,
                const StageGradients& to, const InputGradients& dx) override;
  void Evaluate(int64_t rows, const StageInputs& x, const float* constants, float* y) override;

 private:
  void Drop(int64_t rows, const float* from, float* to);

  const int64_t inputs_;
  const uint64_t layer_;
  const double probability_;
  const DropoutKey* const key_;
  Backend& backend_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_ACTIVATION_STAGES_H_
