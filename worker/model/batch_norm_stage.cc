#include "worker/model/batch_norm_stage.h"

#include "common/base/check.h"

namespace tessera {

absl::StatusOr<std::unique_ptr<Stage>> BatchNormStage::Create(const StagePlan& plan,
                                                              const StageParameters& parameters,
                                                              Backend& backend) {
  auto stage = std::unique_ptr<BatchNormStage>(new BatchNormStage(plan, parameters, backend));
  TESSERA_ASSIGN_OR_RETURN(stage->statistics_,
                           Buffer<float>::Create(backend.memory(), plan.constants()));
  return stage;
}

void BatchNormStage::Forward(int64_t rows, const float* x, float* y) {
  const MatrixShape shape = Shape(rows);
  backend_.batch_norm().Statistics(shape, plan_.epsilon, x, mean(), inverse_sigma());
  backend_.batch_norm().Normalize(shape, x, mean(), inverse_sigma(),
                                  {parameters_.weight, parameters_.bias}, plan_.relu, y);
}

void BatchNormStage::Backward(int64_t rows, const float* x, const float* y, const float* dy,
                              const StageGradients& to, float* dx) {
  BatchNormKernel::BackwardInput in;
  in.x = x;
  in.mean = mean();
  in.inverse_sigma = inverse_sigma();
  in.scale = parameters_.weight;
  // A dropout that overwrote y left it positive where it kept it, and passes no gradient elsewhere.
  in.y = plan_.relu ? y : nullptr;
  in.dy = dy;
  backend_.batch_norm().Backward(Shape(rows), in, to.mode, to.weight, to.bias, dx);
}

void BatchNormStage::Evaluate(int64_t rows, const float* x, const float* constants, float* y) {
  backend_.batch_norm().Normalize(Shape(rows), x, constants, constants + channels(),
                                  {parameters_.weight, parameters_.bias}, plan_.relu, y);
}

}  // namespace tessera
