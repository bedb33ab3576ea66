// Normalisation in groups, in loops of our own: it has the same bits on every CPU and with any number of threads.
#ifndef TESSERA_KERNELS_CPU_GROUP_NORM_H_
#define TESSERA_KERNELS_CPU_GROUP_NORM_H_

#include "kernels/cpu/threads.h"
#include "kernels/group_norm.h"

namespace tessera {

class CpuGroupNorm final : public GroupNormKernel {
 public:
  explicit CpuGroupNorm(const CpuThreads& threads) : threads_(threads) {}

  void Forward(const GroupsShape& shape, double epsilon, const float* x, const Affine& affine,
               float* mean, float* inverse_sigma, float* y) override;
  void Backward(const GroupsShape& shape, const BackwardInput& in, WriteMode mode, float* dscale,
                float* dshift, float* dx) override;

 private:
  const CpuThreads threads_;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_CPU_GROUP_NORM_H_
