#include "bench/step/head_products.h"

#include <omp.h>

#include "common/base/check.h"
#include "dnnl.h"

namespace tessera {
namespace {

// A matrix whose rows are `step` values apart, or its transpose.
struct Side {
  char turned;
  const float* values;
  int64_t step;
};

// c[m, n] = a[m, k] b[k, n].
void Multiply(int64_t m, int64_t n, int64_t k, const Side& a, const Side& b, float* c,
              int64_t c_step) {
  TESSERA_CHECK(dnnl_sgemm(a.turned, b.turned, m, n, k, 1.0f, a.values, a.step, b.values, b.step,
                           0.0f, c, c_step) == dnnl_success);
}

}  // namespace

HeadProducts::HeadProducts(const AttentionShape& shape)
    : shape_(shape),
      qkv_(3 * shape.size(), 0.5f),
      y_(shape.size(), 0.5f),
      scores_(2 * shape.sums() * shape.places, 0.5f),
      dqkv_(3 * shape.size()) {}

void HeadProducts::Forward(int threads) {
  omp_set_num_threads(threads);
  const int64_t n = shape_.places, d = shape_.head_size, width = shape_.width(), step = 3 * width;
  for (int64_t i = 0; i < shape_.rows * shape_.heads; ++i) {
    const int64_t row = i / shape_.heads * n, head = i % shape_.heads * d;
    const float* const q = qkv_.data() + row * step + head;
    float* const scores = scores_.data() + 2 * i * n * n;
    Multiply(n, n, d, {'N', q, step}, {'T', q + width, step}, scores, n);
    Multiply(n, d, n, {'N', scores, n}, {'N', q + 2 * width, step}, y_.data() + row * width + head,
             width);
  }
}

void HeadProducts::Backward(int threads) {
  omp_set_num_threads(threads);
  const int64_t n = shape_.places, d = shape_.head_size, width = shape_.width(), step = 3 * width;
  for (int64_t i = 0; i < shape_.rows * shape_.heads; ++i) {
    const int64_t row = i / shape_.heads * n, head = i % shape_.heads * d;
    const float* const q = qkv_.data() + row * step + head;
    const float* const dy = y_.data() + row * width + head;
    const float* const weights = scores_.data() + 2 * i * n * n;
    float* const slopes = scores_.data() + (2 * i + 1) * n * n;
    float* const dq = dqkv_.data() + row * step + head;
    Multiply(n, n, d, {'N', dy, width}, {'T', q + 2 * width, step}, slopes, n);
    Multiply(n, d, n, {'T', weights, n}, {'N', dy, width}, dq + 2 * width, step);
    Multiply(n, d, n, {'N', slopes, n}, {'N', q + width, step}, dq, step);
    Multiply(n, d, n, {'T', slopes, n}, {'N', q, step}, dq + width, step);
  }
}

}  // namespace tessera
