#include "kernels/cuda/attention.h"

#include <cmath>

#include "common/base/check.h"
#include "kernels/cuda/attention_kernels.h"

namespace tessera {
namespace {

template <typename Kernel>
Kernel KernelFor(const AttentionShape& shape, const AttentionDropout& dropout, const float* qkv) {
  TESSERA_CHECK(dropout.probability >= 0 && dropout.probability < 1);
  TESSERA_CHECK(dropout.layer < 1u << 16);
  Kernel kernel = {};
  kernel.rows = shape.rows;
  kernel.places = shape.places;
  kernel.heads = shape.heads;
  kernel.size = shape.head_size;
  kernel.causal = shape.causal;
  kernel.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_size)));
  kernel.qkv = qkv;
  kernel.key = dropout.key;
  kernel.layer = dropout.layer;
  // k / 2^24 < probability for just the integers k below this.
  kernel.drop = static_cast<uint32_t>(std::ceil(dropout.probability * 0x1p24));
  kernel.grows = static_cast<float>(1.0 / (1.0 - dropout.probability));
  return kernel;
}

}  // namespace

void CudaAttention::Forward(const AttentionShape& shape, const AttentionDropout& dropout,
                            const float* qkv, float* y, float* log_sums) {
  auto kernel = KernelFor<cuda::AttentionForward>(shape, dropout, qkv);
  kernel.y = y;
  kernel.log_sums = log_sums;
  device_.Launch(kernel.blocks(), kernel);
}

void CudaAttention::Backward(const AttentionShape& shape, const AttentionDropout& dropout,
                             const BackwardInput& in, float* dqkv) {
  float* const shares = static_cast<float*>(scratch_.Of(ScratchBytes(shape)));
  if (shape.sums() == 0 || shares == nullptr) return;
  const cuda::AttentionShares sums{{},   shape.sums(), shape.places, shape.heads, shape.head_size,
                                   in.y, in.dy,        shares};
  device_.Launch(sums.blocks(), sums);
  const auto launch = [&](auto kernel) {
    kernel.log_sums = in.log_sums;
    kernel.shares = shares;
    kernel.dy = in.dy;
    kernel.dqkv = dqkv;
    device_.Launch(kernel.blocks(), kernel);
  };
  launch(KernelFor<cuda::AttentionQueryGradients>(shape, dropout, in.qkv));
  launch(KernelFor<cuda::AttentionKeyGradients>(shape, dropout, in.qkv));
}

}  // namespace tessera
