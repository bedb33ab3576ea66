// Batch norm, with the relu behind it if there is one.
#ifndef TESSERA_WORKER_MODEL_BATCH_NORM_STAGE_H_
#define TESSERA_WORKER_MODEL_BATCH_NORM_STAGE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "worker/model/plan.h"
#include "worker/model/stage.h"

namespace tessera {

// Training normalises with the statistics of the rows at hand, the minibatch or a piece of it.
// Evaluation uses constants: the means, then as many 1/sigma. Those of an image's channel are over all
// of its places.
class BatchNormStage final : public Stage {
 public:
  // kResourceExhausted: no memory.
  static absl::StatusOr<std::unique_ptr<Stage>> Create(const StagePlan& plan,
                                                       const StageParameters& parameters,
                                                       Backend& backend);

  void Forward(int64_t rows, const float* x, float* y) override;
  void Backward(int64_t rows, const float* x, const float* y, const float* dy,
                const StageGradients& to, float* dx) override;
  void Evaluate(int64_t rows, const float* x, const float* constants, float* y) override;

 private:
  BatchNormStage(const StagePlan& plan, const StageParameters& parameters, Backend& backend)
      : plan_(plan), parameters_(parameters), backend_(backend) {}
  float* mean() const { return statistics_.data(); }
  float* inverse_sigma() const { return statistics_.data() + channels(); }
  int64_t channels() const { return plan_.map.from.channels; }
  MatrixShape Shape(int64_t rows) const { return {rows * plan_.map.from.positions(), channels()}; }

  const StagePlan plan_;
  const StageParameters parameters_;
  Backend& backend_;
  // Of the rows at hand.
  Buffer<float> statistics_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_BATCH_NORM_STAGE_H_
