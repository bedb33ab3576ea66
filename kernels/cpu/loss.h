// Losses, row by row.
#ifndef TESSERA_KERNELS_CPU_LOSS_H_
#define TESSERA_KERNELS_CPU_LOSS_H_

#include <vector>

#include "kernels/cpu/threads.h"
#include "kernels/loss.h"

namespace tessera {

// Threads share out the rows; their results are added in the order of the rows.
class CpuLoss final : public LossKernel {
 public:
  explicit CpuLoss(const CpuThreads& threads) : threads_(threads) {}

  void SoftmaxCrossEntropy(const MatrixShape& shape, const float* logits,
                           const LossTargets& targets, const LossPiece& piece, float* gradient,
                           LossSums* sums) override;
  void SigmoidCrossEntropy(const MatrixShape& shape, const float* logits,
                           const LossTargets& targets, const LossPiece& piece, float* gradient,
                           LossSums* sums) override;
  void MeanSquaredError(const MatrixShape& shape, const float* logits, const LossTargets& targets,
                        const LossPiece& piece, float* gradient, LossSums* sums) override;

 private:
  template <typename F>
  void ForRows(const MatrixShape& shape, WriteMode mode, LossSums* sums, const F& row_loss);

  const CpuThreads threads_;
  std::vector<LossSums> rows_;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_CPU_LOSS_H_
