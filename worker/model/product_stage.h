// Layers that multiply with a matrix of weights: linear, and convolution.
#ifndef TESSERA_WORKER_MODEL_PRODUCT_STAGE_H_
#define TESSERA_WORKER_MODEL_PRODUCT_STAGE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "worker/model/stage.h"
#include "worker/model/stage_kind.h"

namespace tessera {

StageKind LinearStageKind();
StageKind ConvolutionStageKind();

// In bf16 and tf32, the factors x, W and dy of the three products are rounded once each; evaluation
// stays in f32. Kernel is LinearKernel or ConvolutionKernel.
template <template <typename> class Kernel>
class ProductStage final : public Stage {
 public:
  //   kResourceExhausted   no memory
  //   kFailedPrecondition  tf32 or bf16, and the device has none
  static absl::StatusOr<std::unique_ptr<Stage>> Create(const StagePlan& plan,
                                                       const StageOptions& options,
                                                       Backend& backend);

  void RoundWeight() override;
  Bf16* rounded_weight() const override { return weight_bf16_.data(); }
  void Forward(int64_t rows, const StageInputs& x, float* y) override;
  void Backward(int64_t rows, const StageInputs& x, const float* y, const float* dy,
                const StageGradients& to, const InputGradients& dx) override;
  WeightProduct weight_product(int64_t rows) const override;
  void WeightGradient(int64_t rows, const StageGradients& to) override;
  void Evaluate(int64_t rows, const StageInputs& x, const float* constants, float* y) override;

 private:
  ProductStage(const StagePlan& plan, const StageParameters& parameters, Backend& backend);

  const StagePlan plan_;
  const StageParameters parameters_;
  Backend& backend_;

  Kernel<float>* const exact_;
  // In training without bf16: exact, or with factors in tf32.
  Kernel<float>* f32_ = nullptr;
  // The kernel of products in bf16; null in other precisions.
  Kernel<Bf16>* bf16_ = nullptr;
  Buffer<Bf16> x_bf16_;
  Buffer<Bf16> weight_bf16_;
  Bf16* dy_bf16_ = nullptr;
};

using LinearStage = ProductStage<LinearKernel>;
using ConvolutionStage = ProductStage<ConvolutionKernel>;

extern template class ProductStage<LinearKernel>;
extern template class ProductStage<ConvolutionKernel>;

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_PRODUCT_STAGE_H_
