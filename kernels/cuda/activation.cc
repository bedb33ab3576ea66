#include "kernels/cuda/activation.h"

#include <cmath>
#include <type_traits>

#include "common/base/check.h"
#include "kernels/cuda/activation_kernels.h"

namespace tessera {

void CudaActivation::Relu(int64_t n, const float* x, float* y) {
  const cuda::Elementwise<cuda::ReluOp> kernel({{{}, {x}, {y}}}, n);
  device_.Launch(kernel.blocks(), kernel);
}

void CudaActivation::ReluBackward(int64_t n, const float* y, const float* dy, float* dx) {
  const cuda::Elementwise<cuda::ReluBackwardOp> kernel({{{}, {y, dy}, {dx}}}, n);
  device_.Launch(kernel.blocks(), kernel);
}

void CudaActivation::Apply(const ActivationFunction& function, int64_t n, const float* x,
                           float* y) {
  WithFunction(function, [&](const auto& f) {
    using Function = std::decay_t<decltype(f)>;
    const cuda::Elementwise<cuda::ApplyOp<Function>> kernel({{{}, {x}, {y}}, f}, n);
    device_.Launch(kernel.blocks(), kernel);
  });
}

void CudaActivation::ApplyBackward(const ActivationFunction& function, int64_t n, const float* of,
                                   const float* dy, float* dx) {
  WithFunction(function, [&](const auto& f) {
    using Function = std::decay_t<decltype(f)>;
    const cuda::Elementwise<cuda::ApplyBackwardOp<Function>> kernel({{{}, {of, dy}, {dx}}, f}, n);
    device_.Launch(kernel.blocks(), kernel);
  });
}

void CudaActivation::Dropout(const MatrixShape& shape, const DropoutKey* key, uint64_t layer,
                             double probability, const float* x, float* y) {
  TESSERA_CHECK(probability >= 0 && probability < 1);
  // The limits of DropoutKey's parts: 16 bits of layer, 40 bits of a block of four elements.
  TESSERA_CHECK(layer < 1u << 16 && shape.size() / 4 < int64_t{1} << 40);
  cuda::DropoutOp op;
  op.in[0] = x;
  op.out[0] = y;
  op.key = key;
  op.layer = layer;
  op.columns = shape.columns;
  // k / 2^24 < probability for just the integers k below this.
  op.drop = static_cast<uint32_t>(std::ceil(probability * 0x1p24));
  // What is kept is scaled so that the expected value stays, and evaluation needs no factor.
  op.scale = static_cast<float>(1.0 / (1.0 - probability));
  const cuda::Elementwise<cuda::DropoutOp> kernel(op, shape.size());
  device_.Launch(kernel.blocks(), kernel);
}

}  // namespace tessera
