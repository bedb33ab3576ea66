// Pooling in loops of our own: what is equally large has one answer on every device.
#ifndef TESSERA_KERNELS_CPU_POOLING_H_
#define TESSERA_KERNELS_CPU_POOLING_H_

#include "kernels/cpu/threads.h"
#include "kernels/pooling.h"

namespace tessera {

class CpuPooling final : public PoolingKernel {
 public:
  explicit CpuPooling(const CpuThreads& threads) : threads_(threads) {}

  void Max(const ImagesShape& shape, const float* x, float* y) override;
  void MaxBackward(const ImagesShape& shape, const float* x, const float* dy, float* dx) override;
  void Average(const ImagesShape& shape, const float* x, float* y) override;
  void AverageBackward(const ImagesShape& shape, const float* dy, float* dx) override;

 private:
  const CpuThreads threads_;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_CPU_POOLING_H_
