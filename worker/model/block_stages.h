// The stages that join the parts of blocks: the sum of a residual block, and what a concat puts side by side.
#ifndef TESSERA_WORKER_MODEL_BLOCK_STAGES_H_
#define TESSERA_WORKER_MODEL_BLOCK_STAGES_H_

#include <cstdint>
#include <vector>

#include "kernels/backend.h"
#include "worker/model/stage.h"
#include "worker/model/stage_kind.h"

namespace tessera {

StageKind SumStageKind();
StageKind ConcatStageKind();

class SumStage final : public Stage {
 public:
  SumStage(const StagePlan& plan, const StageOptions&, Backend& backend)
      : width_(plan.outputs), backend_(backend) {}

  void Forward(int64_t rows, const StageInputs& x, float* y) override;
  void Backward(int64_t rows, const StageInputs& x, const float* y, const float* dy,
                const StageGradients& to, const InputGradients& dx) override;
  void Evaluate(int64_t rows, const StageInputs& x, const float* constants, float* y) override;

 private:
  const int64_t width_;
  Backend& backend_;
};

// The channels of each place, or the features of a row, of one input after the other.
class ConcatStage final : public Stage {
 public:
  ConcatStage(const StagePlan& plan, const StageOptions&, Backend& backend)
      : positions_(plan.map.to.positions()),
        channels_(plan.map.to.channels),
        part_channels_(plan.read_channels),
        backend_(backend) {}

  void Forward(int64_t rows, const StageInputs& x, float* y) override;
  void Backward(int64_t rows, const StageInputs& x, const float* y, const float* dy,
                const StageGradients& to, const InputGradients& dx) override;
  void Evaluate(int64_t rows, const StageInputs& x, const float* constants, float* y) override;

 private:
  const int64_t positions_;
  const int64_t channels_;
  const std::vector<int64_t> part_channels_;
  Backend& backend_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_BLOCK_STAGES_H_
