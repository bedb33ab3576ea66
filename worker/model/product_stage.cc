#include "worker/model/product_stage.h"

#include <algorithm>

#include "common/base/check.h"

namespace tessera {
namespace {

template <typename T>
StageKind Product(v1::Layer::KindCase layer) {
  StageKind kind{layer, T::Create};
  kind.is_product = true;
  kind.backward_reads_y = false;
  return kind;
}

// What differs between the two kinds, by overloads that take a kernel's pointer for its type alone.
LinearShape ShapeOf(const LinearKernel<float>*, const StagePlan& plan, int64_t rows) {
  const int64_t places = plan.map.from.places();
  return {rows * places, plan.inputs / places, plan.outputs / places};
}
ImagesShape ShapeOf(const ConvolutionKernel<float>*, const StagePlan& plan, int64_t rows) {
  return {rows, plan.map};
}

void Find(Backend& backend, LinearKernel<float>** exact) { *exact = &backend.linear(); }
void Find(Backend& backend, ConvolutionKernel<float>** exact) { *exact = &backend.convolution(); }

absl::StatusOr<LinearKernel<float>*> Tf32Of(const LinearKernel<float>*, Backend& backend) {
  return backend.linear_tf32();
}
absl::StatusOr<ConvolutionKernel<float>*> Tf32Of(const ConvolutionKernel<float>*,
                                                 Backend& backend) {
  return backend.convolution_tf32();
}

absl::StatusOr<LinearKernel<Bf16>*> Bf16Of(const LinearKernel<float>*, Backend& backend) {
  return backend.linear_bf16();
}
absl::StatusOr<ConvolutionKernel<Bf16>*> Bf16Of(const ConvolutionKernel<float>*, Backend& backend) {
  return backend.convolution_bf16();
}

// A linear layer's weight has the gradient dy^T x, of rounded factors that an optimizer may multiply itself.
WeightProduct ProductOf(const LinearShape& shape, const Bf16* x, const Bf16* dy) {
  return {shape, x, dy};
}
// A convolution has as many pairs of factors as its window has places, and offers none.
WeightProduct ProductOf(const ImagesShape&, const Bf16*, const Bf16*) { return {}; }

template <typename K>
K* Exact(Backend& backend) {
  K* exact = nullptr;
  Find(backend, &exact);
  return exact;
}

absl::StatusOr<int64_t> ConvolutionScratch(const StagePlan& plan, int64_t rows, Precision precision,
                                           Backend& backend) {
  const ImagesShape shape{rows, plan.map};
  // A stage that trains in tf32 or bf16 is evaluated in f32 all the same, so that both must have room.
  int64_t bytes = backend.convolution().ScratchBytes(shape);
  if (precision == Precision::kTf32) {
    TESSERA_ASSIGN_OR_RETURN(const auto* const tf32, backend.convolution_tf32());
    bytes = std::max(bytes, tf32->ScratchBytes(shape));
  } else if (precision == Precision::kBf16) {
    TESSERA_ASSIGN_OR_RETURN(const auto* const bf16, backend.convolution_bf16());
    bytes = std::max(bytes, bf16->ScratchBytes(shape));
  }
  return bytes;
}

}  // namespace

StageKind LinearStageKind() {
  StageKind kind = Product<LinearStage>(v1::Layer::kLinear);
  kind.works_by_rows = true;
  return kind;
}

StageKind ConvolutionStageKind() {
  StageKind kind = Product<ConvolutionStage>(v1::Layer::kConv2D);
  kind.scratch_bytes = ConvolutionScratch;
  return kind;
}

template <template <typename> class Kernel>
ProductStage<Kernel>::ProductStage(const StagePlan& plan, const StageParameters& parameters,
                                   Backend& backend)
    : plan_(plan),
      parameters_(parameters),
      backend_(backend),
      exact_(Exact<Kernel<float>>(backend)),
      f32_(exact_) {}

template <template <typename> class Kernel>
absl::StatusOr<std::unique_ptr<Stage>> ProductStage<Kernel>::Create(const StagePlan& plan,
                                                                    const StageOptions& options,
                                                                    Backend& backend) {
  auto stage = std::unique_ptr<ProductStage>(new ProductStage(plan, options.parameters, backend));
  // Evaluations are in f32, whatever the precision in training: metrics do not depend on it.
  if (!options.trains) return stage;
  if (options.precision == Precision::kTf32) {
    TESSERA_ASSIGN_OR_RETURN(stage->f32_, Tf32Of(stage->exact_, backend));
  }
  if (options.precision == Precision::kBf16) {
    TESSERA_ASSIGN_OR_RETURN(stage->bf16_, Bf16Of(stage->exact_, backend));
    TESSERA_ASSIGN_OR_RETURN(
        stage->x_bf16_, Buffer<Bf16>::Create(backend.memory(), options.batch_max * plan.inputs));
    TESSERA_ASSIGN_OR_RETURN(stage->weight_bf16_,
                             Buffer<Bf16>::Create(backend.memory(), plan.weight_size));
    // Gradients of all stages' outputs are rounded one after the other, and share one place.
    stage->dy_bf16_ = options.dy_bf16;
  }
  return stage;
}

template <template <typename> class Kernel>
void ProductStage<Kernel>::RoundWeight() {
  // Only once behind an update, not in each piece of a minibatch (TrainingPass::Begin).
  if (bf16_ == nullptr) return;
  backend_.vector().Round(plan_.weight_size, parameters_.weight, weight_bf16_.data());
}

template <template <typename> class Kernel>
void ProductStage<Kernel>::Forward(int64_t rows, const StageInputs& x, float* y) {
  const auto shape = ShapeOf(exact_, plan_, rows);
  if (bf16_ == nullptr) {
    f32_->Forward(shape, x[0], parameters_.weight, parameters_.bias, y);
    return;
  }
  // Kept for the weight's gradient, which is dy^T x with x as rounded here.
  backend_.vector().Round(rows * plan_.inputs, x[0], x_bf16_.data());
  bf16_->Forward(shape, x_bf16_.data(), weight_bf16_.data(), parameters_.bias, y);
}

template <template <typename> class Kernel>
void ProductStage<Kernel>::Backward(int64_t rows, const StageInputs& x, const float*,
                                    const float* dy, const StageGradients& to,
                                    const InputGradients& dx) {
  const auto shape = ShapeOf(exact_, plan_, rows);
  // The bias's gradient is a sum of dy in f32, in every precision.
  if (to.bias != nullptr) {
    backend_.vector().ColumnSums({rows * plan_.map.to.positions(), plan_.map.to.channels}, dy,
                                 to.mode, to.bias);
  }
  const bool wants_weight = to.weight != nullptr;
  if (bf16_ == nullptr) {
    if (wants_weight) f32_->WeightGradient(shape, x[0], dy, to.mode, to.weight);
    if (dx[0] != nullptr) f32_->InputGradient(shape, dy, parameters_.weight, dx[0]);
    return;
  }
  backend_.vector().Round(rows * plan_.outputs, dy, dy_bf16_);
  if (wants_weight) bf16_->WeightGradient(shape, x_bf16_.data(), dy_bf16_, to.mode, to.weight);
  if (dx[0] != nullptr) bf16_->InputGradient(shape, dy_bf16_, weight_bf16_.data(), dx[0]);
}

template <template <typename> class Kernel>
WeightProduct ProductStage<Kernel>::weight_product(int64_t rows) const {
  if (bf16_ == nullptr) return {};
  return ProductOf(ShapeOf(exact_, plan_, rows), x_bf16_.data(), dy_bf16_);
}

template <template <typename> class Kernel>
void ProductStage<Kernel>::WeightGradient(int64_t rows, const StageGradients& to) {
  TESSERA_CHECK(bf16_ != nullptr);
  bf16_->WeightGradient(ShapeOf(exact_, plan_, rows), x_bf16_.data(), dy_bf16_, to.mode, to.weight);
}

template <template <typename> class Kernel>
void ProductStage<Kernel>::Evaluate(int64_t rows, const StageInputs& x, const float*, float* y) {
  exact_->Forward(ShapeOf(exact_, plan_, rows), x[0], parameters_.weight, parameters_.bias, y);
}

template class ProductStage<LinearKernel>;
template class ProductStage<ConvolutionKernel>;

}  // namespace tessera
