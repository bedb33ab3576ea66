// Attention in blocks of 64 places by 64, each (row, head) on a thread. Same bits on every CPU, with any number of
// threads.
#ifndef TESSERA_KERNELS_CPU_ATTENTION_H_
#define TESSERA_KERNELS_CPU_ATTENTION_H_

#include <vector>

#include "kernels/attention.h"
#include "kernels/cpu/threads.h"

namespace tessera {

class CpuAttention final : public AttentionKernel {
 public:
  explicit CpuAttention(const CpuThreads& threads) : threads_(threads) {}

  void Forward(const AttentionShape& shape, const AttentionDropout& dropout, const float* qkv,
               float* y, float* log_sums) override;
  void Backward(const AttentionShape& shape, const AttentionDropout& dropout,
                const BackwardInput& in, float* dqkv) override;
  int64_t ScratchBytes(const AttentionShape&) const override { return 0; }

 private:
  const CpuThreads threads_;
  std::vector<float> scratch_;  // blocks of each thread; grows at first use
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_CPU_ATTENTION_H_
