// The stages that normalise values by those around them in the same row or image: layer norm, group norm, and local
// response norm. They do the same in evaluation as in training.
#ifndef TESSERA_WORKER_MODEL_NORM_STAGES_H_
#define TESSERA_WORKER_MODEL_NORM_STAGES_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "worker/model/stage.h"
#include "worker/model/stage_kind.h"

namespace tessera {

StageKind LayerNormStageKind();
StageKind GroupNormStageKind();
StageKind ResponseNormStageKind();

// Layer norm is a group norm of one group, in which each value has a scale and a shift of its own. On images those are
// [channels, height, width], and the values lie channels last: the stage works with copies that lie as the values do.
class GroupNormStage final : public Stage {
 public:
  // kResourceExhausted: no memory.
  static absl::StatusOr<std::unique_ptr<Stage>> Create(const StagePlan& plan,
                                                       const StageOptions& options,
                                                       Backend& backend);
  // Floats that such a stage keeps.
  static int64_t KeptFloats(const StagePlan& plan, int64_t batch_max, bool trains);

  void Forward(int64_t rows, const StageInputs& x, float* y) override;
  void Backward(int64_t rows, const StageInputs& x, const float* y, const float* dy,
                const StageGradients& to, const InputGradients& dx) override;
  void Evaluate(int64_t rows, const StageInputs& x, const float* constants, float* y) override;

 private:
  GroupNormStage(const StagePlan& plan, const StageOptions& options, Backend& backend);
  GroupsShape Shape(int64_t rows) const;
  // Copies from the order of a parameter to that of the values, and back.
  void Turn(const float* parameter, float* values) const;
  void TurnBack(const float* values, float* parameter) const;

  const Image image_;
  const GroupsShape of_row_;
  const double epsilon_;
  const bool turns_;
  const int64_t batch_max_;
  const StageParameters parameters_;
  Backend& backend_;
  // The statistics of batch_max rows; then, if it turns them, the parameters and their gradients, as the values lie.
  Buffer<float> kept_;
  float* mean_ = nullptr;
  float* inverse_sigma_ = nullptr;
  float* scale_ = nullptr;
  float* shift_ = nullptr;
  StageGradients turned_gradients_;
};

class ResponseNormStage final : public Stage {
 public:
  ResponseNormStage(const StagePlan& plan, const StageOptions&, Backend& backend);

  void Forward(int64_t rows, const StageInputs& x, float* y) override;
  void Backward(int64_t rows, const StageInputs& x, const float* y, const float* dy,
                const StageGradients& to, const InputGradients& dx) override;
  void Evaluate(int64_t rows, const StageInputs& x, const float* constants, float* y) override;

 private:
  MatrixShape Shape(int64_t rows) const { return {rows * image_.positions(), image_.channels}; }

  const Image image_;
  const ResponseWindow window_;
  Backend& backend_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_NORM_STAGES_H_
