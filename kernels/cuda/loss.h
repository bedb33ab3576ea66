// Losses on a GPU: a block for each row.
#ifndef TESSERA_KERNELS_CUDA_LOSS_H_
#define TESSERA_KERNELS_CUDA_LOSS_H_

#include "kernels/cuda/device.h"
#include "kernels/cuda/scratch.h"
#include "kernels/loss.h"

namespace tessera {

class CudaLoss final : public LossKernel {
 public:
  CudaLoss(cuda::Device* device, CudaScratch* scratch) : device_(*device), scratch_(*scratch) {}

  void SoftmaxCrossEntropy(const MatrixShape& shape, const float* logits,
                           const LossTargets& targets, const LossPiece& piece, float* gradient,
                           LossSums* sums) override;
  void SigmoidCrossEntropy(const MatrixShape& shape, const float* logits,
                           const LossTargets& targets, const LossPiece& piece, float* gradient,
                           LossSums* sums) override;
  void MeanSquaredError(const MatrixShape& shape, const float* logits, const LossTargets& targets,
                        const LossPiece& piece, float* gradient, LossSums* sums) override;

 private:
  template <typename Rows>
  void Run(const MatrixShape& shape, const LossPiece& piece, Rows rows, LossSums* sums);

  cuda::Device& device_;
  CudaScratch& scratch_;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_CUDA_LOSS_H_
