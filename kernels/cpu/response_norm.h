// Local response normalisation in loops of our own: oneDNN's windows of an even size lie elsewhere.
#ifndef TESSERA_KERNELS_CPU_RESPONSE_NORM_H_
#define TESSERA_KERNELS_CPU_RESPONSE_NORM_H_

#include <vector>

#include "kernels/cpu/threads.h"
#include "kernels/response_norm.h"

namespace tessera {

class CpuResponseNorm final : public ResponseNormKernel {
 public:
  explicit CpuResponseNorm(const CpuThreads& threads) : threads_(threads) {}

  void Forward(const MatrixShape& shape, const ResponseWindow& window, const float* x,
               float* y) override;
  void Backward(const MatrixShape& shape, const ResponseWindow& window, const float* x,
                const float* dy, float* dx) override;
  int64_t ScratchBytes(const MatrixShape&) const override { return 0; }

 private:
  const CpuThreads threads_;
  std::vector<float> scratch_;  // rows of each thread; grows at first use
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_CPU_RESPONSE_NORM_H_
