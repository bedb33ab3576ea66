#include "bench/step/products.h"

#include <omp.h>

#include "common/base/check.h"
#include "dnnl.h"

namespace tessera {
namespace {

// c [m, n] = op(a) [m, k] op(b) [k, n], row-major.
void Product(char op_a, char op_b, int64_t m, int64_t n, int64_t k, const float* a, const float* b,
             float* c) {
  const int64_t lda = op_a == 'N' ? k : m;
  const int64_t ldb = op_b == 'N' ? n : k;
  TESSERA_CHECK(dnnl_sgemm(op_a, op_b, m, n, k, 1.0f, a, lda, b, ldb, 0.0f, c, n) == dnnl_success);
}

}  // namespace

StepProducts::StepProducts(const std::vector<LinearShape>& layers, bool has_first_gradient)
    : has_first_gradient_(has_first_gradient) {
  for (const LinearShape& s : layers) {
    const double product = 2.0 * s.rows * s.inputs * s.outputs;
    flops_ += layers_.empty() && !has_first_gradient_ ? 2 * product : 3 * product;
    Layer layer;
    layer.shape = s;
    layer.x.assign(s.rows * s.inputs, 0.5f);
    layer.weight.assign(s.outputs * s.inputs, 0.25f);
    layer.y.assign(s.rows * s.outputs, 0.0f);
    layer.dweight.assign(s.outputs * s.inputs, 0.0f);
    layer.dx.assign(s.rows * s.inputs, 0.0f);
    layers_.push_back(std::move(layer));
  }
}

void StepProducts::Run(int threads) {
  omp_set_num_threads(threads);
  for (Layer& l : layers_) {
    const LinearShape& s = l.shape;
    Product('N', 'T', s.rows, s.outputs, s.inputs, l.x.data(), l.weight.data(), l.y.data());
  }
  for (size_t i = layers_.size(); i-- > 0;) {
    Layer& l = layers_[i];
    const LinearShape& s = l.shape;
    Product('T', 'N', s.outputs, s.inputs, s.rows, l.y.data(), l.x.data(), l.dweight.data());
    if (i > 0 || has_first_gradient_) {
      Product('N', 'N', s.rows, s.inputs, s.outputs, l.y.data(), l.weight.data(), l.dx.data());
    }
  }
}

}  // namespace tessera
