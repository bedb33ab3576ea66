// What attention is measured against: the products of one that holds all scores, by dnnl_sgemm.
#ifndef TESSERA_BENCH_STEP_HEAD_PRODUCTS_H_
#define TESSERA_BENCH_STEP_HEAD_PRODUCTS_H_

#include <vector>

#include "kernels/attention.h"

namespace tessera {

// A head after the other, on arrays of its own, of which none has useful values.
class HeadProducts {
 public:
  explicit HeadProducts(const AttentionShape& shape);

  // The two products of each head, q k^T and a v, with so many OpenMP threads.
  void Forward(int threads);
  // The four of each head: dy v^T, and the gradients of q, k and v.
  void Backward(int threads);

 private:
  const AttentionShape shape_;
  std::vector<float> qkv_, y_, scores_, dqkv_;
};

}  // namespace tessera

#endif  // TESSERA_BENCH_STEP_HEAD_PRODUCTS_H_
