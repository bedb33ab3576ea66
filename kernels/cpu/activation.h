// Relu, other functions of one value, and dropout.
#ifndef TESSERA_KERNELS_CPU_ACTIVATION_H_
#define TESSERA_KERNELS_CPU_ACTIVATION_H_

#include "kernels/activation.h"
#include "kernels/cpu/threads.h"

namespace tessera {

class CpuActivation final : public ActivationKernel {
 public:
  explicit CpuActivation(const CpuThreads& threads) : threads_(threads) {}

  void Relu(int64_t n, const float* x, float* y) override;
  void ReluBackward(int64_t n, const float* y, const float* dy, float* dx) override;
  void Apply(const ActivationFunction& function, int64_t n, const float* x, float* y) override;
  void ApplyBackward(const ActivationFunction& function, int64_t n, const float* of,
                     const float* dy, float* dx) override;
  void Dropout(const MatrixShape& shape, const DropoutKey* key, uint64_t layer, double probability,
               const float* x, float* y) override;

 private:
  const CpuThreads threads_;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_CPU_ACTIVATION_H_
