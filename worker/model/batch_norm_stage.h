// Batch norm, with the relu behind it if there is one.
#ifndef TESSERA_WORKER_MODEL_BATCH_NORM_STAGE_H_
#define TESSERA_WORKER_MODEL_BATCH_NORM_STAGE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "worker/model/stage.h"
#include "worker/model/stage_kind.h"

namespace tessera {

StageKind BatchNormStageKind();

// Training normalises with the statistics of the rows at hand, the minibatch or a piece of it.
// Evaluation uses constants: the means, then as many 1/sigma. Those of an image's channel are over all
// of its places.
class BatchNormStage final : public Stage {
 public:
  // kResourceExhausted: no memory.
  static absl::StatusOr<std::unique_ptr<Stage>> Create(const StagePlan& plan,
                                                       const StageOptions& options,
                                                       Backend& backend);

  void Forward(int64_t rows, const StageInputs& x, float* y) override;
  void Backward(int64_t rows, const StageInputs& x, const float* y, const float* dy,
                const StageGradients& to, const InputGradients& dx) override;
  void Evaluate(int64_t rows, const StageInputs& x, const float* constants, float* y) override;
  void EvaluateColumns(const UnitColumns& columns, const float* x, const float* constants,
                       float* y) override;
  void AddToSums(const UnitColumns& columns, bool is_first, const float* x, double* sums) override;
  void FindConstants(const UnitColumns& columns, const double* sums, float* constants) override;

 private:
  BatchNormStage(const StagePlan& plan, const StageParameters& parameters, Backend& backend);
  float* mean() const { return statistics_.data(); }
  float* inverse_sigma() const { return statistics_.data() + image_.channels; }
  MatrixShape Shape(int64_t rows) const { return {rows * image_.positions(), image_.channels}; }

  const Image image_;
  const double epsilon_;
  const bool relu_;
  const StageParameters parameters_;
  Backend& backend_;
  // The mean and 1/sigma of each channel over the rows at hand, in training.
  Buffer<float> statistics_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_BATCH_NORM_STAGE_H_
