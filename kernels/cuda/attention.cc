#include "kernels/cuda/attention.h"

#include <cmath>

#include "common/base/check.h"
#include "kernels/cuda/attention_kernels.h"
#include "kernels/cuda/attention_products.h"

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
  // softmax(q k^T / sqrt(d)): with it the products of random heads have variance 1, whatever their size.
  kernel.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_size)));
  kernel.qkv = qkv;
  kernel.key = dropout.key;
  kernel.layer = dropout.layer;
  // k / 2^24 < probability for just the integers k below this.
  kernel.drop = static_cast<uint32_t>(std::ceil(dropout.probability * 0x1p24));
  kernel.grows = static_cast<float>(1.0 / (1.0 - dropout.probability));
  return kernel;
}

// Whether the kernels by products for heads of up to `size` columns take it.
bool ByProducts(const AttentionShape& shape, int64_t size) {
  return shape.bf16 && shape.head_size <= size;
}

template <typename Kernel>
Kernel ProductsFor(const AttentionShape& shape, const AttentionDropout& dropout, const float* qkv) {
  auto kernel = KernelFor<Kernel>(shape, dropout, qkv);
  // Rows of four floats are loaded at once.
  kernel.is_wide = shape.head_size % 4 == 0 && cuda::HoldsFours(qkv);
  return kernel;
}

}  // namespace

void CudaAttention::Forward(const AttentionShape& shape, const AttentionDropout& dropout,
                            const float* qkv, float* y, float* log_sums) {
  const auto launch = [&](auto kernel) {
    kernel.y = y;
    kernel.log_sums = log_sums;
    device_.Launch(kernel.blocks(), kernel);
  };
  // The smallest kernel that holds a head in its tiles: wider tiles would multiply zeros.
  if (ByProducts(shape, 32)) {
    launch(ProductsFor<cuda::AttentionForwardProducts<32>>(shape, dropout, qkv));
  } else if (ByProducts(shape, 64)) {
    launch(ProductsFor<cuda::AttentionForwardProducts<64>>(shape, dropout, qkv));
  } else {
    // Heads that are wider, and products in f32, take the kernel without tiles of products.
    launch(KernelFor<cuda::AttentionForward>(shape, dropout, qkv));
  }
}

void CudaAttention::Backward(const AttentionShape& shape, const AttentionDropout& dropout,
                             const BackwardInput& in, float* dqkv) {
  // Both gradient kernels need dy . y of every query, so it is computed once before them.
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
  const auto launch_products = [&](auto kernel) {
    // Loads of four floats need addresses that are multiples of 16 bytes, of dy as of qkv.
    kernel.is_wide = kernel.is_wide && cuda::HoldsFours(in.dy);
    launch(kernel);
  };
  if (ByProducts(shape, 32)) {
    launch_products(ProductsFor<cuda::AttentionQueryProducts<32>>(shape, dropout, in.qkv));
    launch_products(ProductsFor<cuda::AttentionKeyProducts<32>>(shape, dropout, in.qkv));
  } else if (ByProducts(shape, 64)) {
    launch_products(ProductsFor<cuda::AttentionQueryProducts<64>>(shape, dropout, in.qkv));
    launch_products(ProductsFor<cuda::AttentionKeyProducts<64>>(shape, dropout, in.qkv));
  } else {
    // In two kernels, one by queries and one by keys, so that no gradient is added up by several blocks.
    launch(KernelFor<cuda::AttentionQueryGradients>(shape, dropout, in.qkv));
    launch(KernelFor<cuda::AttentionKeyGradients>(shape, dropout, in.qkv));
  }
}

}  // namespace tessera
