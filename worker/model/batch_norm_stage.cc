#include "worker/model/batch_norm_stage.h"

#include "common/base/check.h"

namespace tessera {

StageKind BatchNormStageKind() {
  StageKind kind{v1::Layer::kBatchNorm, BatchNormStage::Create};
  kind.joins = v1::Layer::kRelu;
  kind.backward_in_place = true;
  kind.backward_reads_y = false;
  // Where a relu has joined the stage, the signs of y say through which units a gradient passes.
  kind.joined_reads_y = true;
  kind.reads_signs_of_y = true;
  // The mean and 1/sigma of the minibatch, from Forward to Backward. An evaluation is given constants instead.
  kind.kept_floats = [](const StagePlan& plan, int64_t, bool trains) {
    return trains ? plan.constants() : 0;
  };
  return kind;
}

BatchNormStage::BatchNormStage(const StagePlan& plan, const StageParameters& parameters,
                               Backend& backend)
    : image_(plan.map.from),
      epsilon_(plan.settings.batch_norm().epsilon()),
      relu_(plan.is_joined),
      parameters_(parameters),
      backend_(backend) {}

absl::StatusOr<std::unique_ptr<Stage>> BatchNormStage::Create(const StagePlan& plan,
                                                              const StageOptions& options,
                                                              Backend& backend) {
  auto stage =
      std::unique_ptr<BatchNormStage>(new BatchNormStage(plan, options.parameters, backend));
  if (options.trains) {
    TESSERA_ASSIGN_OR_RETURN(stage->statistics_,
                             Buffer<float>::Create(backend.memory(), plan.constants()));
  }
  return stage;
}

void BatchNormStage::Forward(int64_t rows, const StageInputs& x, float* y) {
  const MatrixShape shape = Shape(rows);
  backend_.batch_norm().Statistics(shape, epsilon_, x[0], mean(), inverse_sigma());
  backend_.batch_norm().Normalize(shape, x[0], mean(), inverse_sigma(),
                                  {parameters_.weight, parameters_.bias}, relu_, y);
}

void BatchNormStage::Backward(int64_t rows, const StageInputs& x, const float* y, const float* dy,
                              const StageGradients& to, const InputGradients& dx) {
  BatchNormKernel::BackwardInput in;
  in.x = x[0];
  in.mean = mean();
  in.inverse_sigma = inverse_sigma();
  in.scale = parameters_.weight;
  // A dropout that overwrote y left it positive where it kept it, and passes no gradient elsewhere.
  in.y = relu_ ? y : nullptr;
  in.dy = dy;
  backend_.batch_norm().Backward(Shape(rows), in, to.mode, to.weight, to.bias, dx[0]);
}

void BatchNormStage::Evaluate(int64_t rows, const StageInputs& x, const float* constants,
                              float* y) {
  EvaluateColumns({Shape(rows), 0}, x[0], constants, y);
}

void BatchNormStage::EvaluateColumns(const UnitColumns& columns, const float* x,
                                     const float* constants, float* y) {
  const int64_t first = columns.first;
  // A batch norm without parameters has null addresses, which stay null.
  BatchNormKernel::Affine affine{parameters_.weight, parameters_.bias};
  if (affine.scale != nullptr) affine.scale += first;
  if (affine.shift != nullptr) affine.shift += first;
  backend_.batch_norm().Normalize(columns.matrix, x, constants + first,
                                  constants + image_.channels + first, affine, relu_, y);
}

void BatchNormStage::AddToSums(const UnitColumns& columns, bool is_first, const float* x,
                               double* sums) {
  backend_.batch_norm().AddToSums(columns.matrix, is_first, x, sums);
}

void BatchNormStage::FindConstants(const UnitColumns& columns, const double* sums,
                                   float* constants) {
  const int64_t first = columns.first;
  // Constants are all channels' means, then all channels' 1/sigma.
  backend_.batch_norm().StatisticsOfSums(columns.matrix, epsilon_, sums, constants + first,
                                         constants + image_.channels + first);
}

}  // namespace tessera
