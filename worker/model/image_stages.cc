#include "worker/model/image_stages.h"

namespace tessera {
namespace {

// Neither pooling by means nor a transpose needs more than the gradient behind it.
StageKind Linear(StageKind kind) {
  kind.backward_reads_x = false;
  kind.backward_reads_y = false;
  return kind;
}

absl::StatusOr<std::unique_ptr<Stage>> MakeToChannelsLast(const StagePlan& plan,
                                                          const StageOptions&, Backend& backend) {
  const Image& image = plan.map.from;
  return std::make_unique<TransposeStage>(MatrixShape{image.channels, image.positions()}, backend);
}

absl::StatusOr<std::unique_ptr<Stage>> MakeFromChannelsLast(const StagePlan& plan,
                                                            const StageOptions&, Backend& backend) {
  const Image& image = plan.map.from;
  return std::make_unique<TransposeStage>(MatrixShape{image.positions(), image.channels}, backend);
}

}  // namespace

StageKind MaxPoolStageKind() {
  StageKind kind{v1::Layer::kMaxPool, MakeStage<MaxPoolStage>};
  // Backward finds the largest value of each window again in x: nothing is kept of where it was, and y need not be.
  kind.backward_reads_y = false;
  return kind;
}

StageKind AveragePoolStageKind() {
  return Linear({v1::Layer::kAvgPool, MakeStage<AveragePoolStage>});
}

const StageKind& ToChannelsLastKind() {
  static const StageKind kKind = Linear({v1::Layer::KIND_NOT_SET, MakeToChannelsLast});
  return kKind;
}

const StageKind& FromChannelsLastKind() {
  static const StageKind kKind = Linear({v1::Layer::KIND_NOT_SET, MakeFromChannelsLast});
  return kKind;
}

void MaxPoolStage::Forward(int64_t rows, const StageInputs& x, float* y) {
  backend_.pooling().Max({rows, map_}, x[0], y);
}

void MaxPoolStage::Backward(int64_t rows, const StageInputs& x, const float*, const float* dy,
                            const StageGradients&, const InputGradients& dx) {
  backend_.pooling().MaxBackward({rows, map_}, x[0], dy, dx[0]);
}

void MaxPoolStage::Evaluate(int64_t rows, const StageInputs& x, const float*, float* y) {
  Forward(rows, x, y);
}

void AveragePoolStage::Forward(int64_t rows, const StageInputs& x, float* y) {
  backend_.pooling().Average({rows, map_}, x[0], y);
}

void AveragePoolStage::Backward(int64_t rows, const StageInputs&, const float*, const float* dy,
                                const StageGradients&, const InputGradients& dx) {
  backend_.pooling().AverageBackward({rows, map_}, dy, dx[0]);
}

void AveragePoolStage::Evaluate(int64_t rows, const StageInputs& x, const float*, float* y) {
  Forward(rows, x, y);
}

void TransposeStage::Forward(int64_t rows, const StageInputs& x, float* y) {
  backend_.vector().Transpose(rows, shape_, x[0], y);
}

void TransposeStage::Backward(int64_t rows, const StageInputs&, const float*, const float* dy,
                              const StageGradients&, const InputGradients& dx) {
  backend_.vector().Transpose(rows, {shape_.columns, shape_.rows}, dy, dx[0]);
}

void TransposeStage::Evaluate(int64_t rows, const StageInputs& x, const float*, float* y) {
  Forward(rows, x, y);
}

}  // namespace tessera
