// The limit that a training step is measured against: its matrix products alone, by oneDNN's
// dnnl_sgemm.
#ifndef TESSERA_BENCH_STEP_PRODUCTS_H_
#define TESSERA_BENCH_STEP_PRODUCTS_H_

#include <vector>

#include "kernels/shape.h"

namespace tessera {

// The products of one step: forward and weight gradient of every layer, input gradient of all, or of all but
// the first. Factors and results have memory of their own, so that each call finds them as cold as
// the step does.
class StepProducts {
 public:
  explicit StepProducts(const std::vector<LinearShape>& layers, bool has_first_gradient = false);

  double flops() const { return flops_; }
  // Runs them all once on the calling thread with `threads` OpenMP threads.
  void Run(int threads);

 private:
  struct Layer {
    LinearShape shape;
    std::vector<float> x, weight, y, dweight, dx;
  };
  const bool has_first_gradient_;
  std::vector<Layer> layers_;
  double flops_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_BENCH_STEP_PRODUCTS_H_
