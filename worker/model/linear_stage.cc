#include "worker/model/linear_stage.h"

#include "common/base/check.h"

namespace tessera {

absl::StatusOr<std::unique_ptr<Stage>> LinearStage::Create(const StagePlan& plan,
                                                           Precision precision, int64_t batch_max,
                                                           const StageParameters& parameters,
                                                           Bf16* dy_bf16, Backend& backend) {
  auto stage = std::unique_ptr<LinearStage>(new LinearStage(plan, parameters, backend));
  if (precision == Precision::kTf32) {
    TESSERA_ASSIGN_OR_RETURN(stage->f32_, backend.linear_tf32());
  }
  if (precision == Precision::kBf16) {
    TESSERA_ASSIGN_OR_RETURN(stage->bf16_, backend.linear_bf16());
    TESSERA_ASSIGN_OR_RETURN(stage->x_bf16_,
                             Buffer<Bf16>::Create(backend.memory(), batch_max * plan.inputs));
    TESSERA_ASSIGN_OR_RETURN(stage->weight_bf16_,
                             Buffer<Bf16>::Create(backend.memory(), plan.inputs * plan.outputs));
    stage->dy_bf16_ = dy_bf16;
  }
  return stage;
}

void LinearStage::RoundWeight() {
  if (bf16_ == nullptr) return;
  backend_.vector().Round(plan_.inputs * plan_.outputs, parameters_.weight, weight_bf16_.data());
}

void LinearStage::Forward(int64_t rows, const float* x, float* y) {
  if (bf16_ == nullptr) {
    f32_->Forward(Shape(rows), x, parameters_.weight, parameters_.bias, y);
    return;
  }
  backend_.vector().Round(rows * plan_.inputs, x, x_bf16_.data());
  bf16_->Forward(Shape(rows), x_bf16_.data(), weight_bf16_.data(), parameters_.bias, y);
}

void LinearStage::Backward(int64_t rows, const float* x, const float*, const float* dy,
                           WriteMode mode, float* dx) {
  if (parameters_.bias_gradient != nullptr) {
    backend_.vector().ColumnSums({rows, plan_.outputs}, dy, mode, parameters_.bias_gradient);
  }
  if (bf16_ == nullptr) {
    f32_->WeightGradient(Shape(rows), x, dy, mode, parameters_.weight_gradient);
    if (dx != nullptr) f32_->InputGradient(Shape(rows), dy, parameters_.weight, dx);
    return;
  }
  backend_.vector().Round(rows * plan_.outputs, dy, dy_bf16_);
  bf16_->WeightGradient(Shape(rows), x_bf16_.data(), dy_bf16_, mode, parameters_.weight_gradient);
  if (dx != nullptr) bf16_->InputGradient(Shape(rows), dy_bf16_, weight_bf16_.data(), dx);
}

void LinearStage::Evaluate(int64_t rows, const float* x, const float*, float* y) {
  backend_.linear().Forward(Shape(rows), x, parameters_.weight, parameters_.bias, y);
}

}  // namespace tessera
