#include "kernels/cuda/loss.h"

#include <cstddef>

#include "kernels/cuda/loss_kernels.h"

namespace tessera {

using cuda::RowLoss;

// LossSums, which nvcc need not see.
static_assert(sizeof(RowLoss) == sizeof(LossSums) &&
              offsetof(RowLoss, correct) == offsetof(LossSums, correct) &&
              offsetof(RowLoss, hits) == offsetof(LossSums, hits) &&
              offsetof(RowLoss, top_hits) == offsetof(LossSums, top_hits));
static_assert(kTopDepth == cuda::kTop);
static_assert(kPrecisionDepths.size() == cuda::kDepths && kPrecisionDepths[0] == cuda::Depth(0) &&
              kPrecisionDepths[1] == cuda::Depth(1) && kPrecisionDepths[2] == cuda::Depth(2));

template <typename Rows>
void CudaLoss::Run(const MatrixShape& shape, const LossPiece& piece, Rows rows, LossSums* sums) {
  // A row leaves one f64 loss and one word of hits, which a single block then adds up, so that the result does not
  // depend on the order in which the rows' blocks run.
  constexpr auto kRowBytes = static_cast<int64_t>(sizeof(double) + sizeof(uint32_t));
  auto* const losses = static_cast<double*>(scratch_.Of(shape.rows * kRowBytes));
  if (losses == nullptr && shape.rows > 0) return;
  rows.rows = {losses, reinterpret_cast<uint32_t*>(losses + shape.rows)};
  rows.columns = shape.columns;
  rows.share = piece.ShareOf(shape.rows);
  // A block for each row.
  device_.Launch(shape.rows, rows);
  device_.Launch(1, cuda::AddRows{rows.rows, shape.rows, piece.sums == WriteMode::kAdd,
                                  reinterpret_cast<RowLoss*>(sums)});
}

void CudaLoss::SoftmaxCrossEntropy(const MatrixShape& shape, const float* logits,
                                   const LossTargets& targets, const LossPiece& piece,
                                   float* gradient, LossSums* sums) {
  const auto run = [&](auto rows) {
    rows.logits = logits;
    rows.labels = targets.labels;
    rows.even = targets.smoothing;
    rows.gradient = gradient;
    Run(shape, piece, rows, sums);
  };
  // The smallest variant that holds a row in its registers reads the logits once; <0> reads them several times.
  if (targets.smoothing != 0) return run(cuda::SoftmaxRows<0, true>{});
  if (shape.columns <= cuda::SoftmaxRows<4>::kColumnsMax) return run(cuda::SoftmaxRows<4>{});
  if (shape.columns <= cuda::SoftmaxRows<16>::kColumnsMax) return run(cuda::SoftmaxRows<16>{});
  if (shape.columns <= cuda::SoftmaxRows<32>::kColumnsMax) return run(cuda::SoftmaxRows<32>{});
  run(cuda::SoftmaxRows<0>{});
}

void CudaLoss::SigmoidCrossEntropy(const MatrixShape& shape, const float* logits,
                                   const LossTargets& targets, const LossPiece& piece,
                                   float* gradient, LossSums* sums) {
  const auto run = [&](auto rows) {
    rows.logits = logits;
    rows.labels = targets.labels;
    rows.targets = targets.targets;
    rows.gradient = gradient;
    Run(shape, piece, rows, sums);
  };
  if (targets.targets != nullptr) {
    run(cuda::SigmoidRows<true>{});
  } else {
    run(cuda::SigmoidRows<false>{});
  }
}

void CudaLoss::MeanSquaredError(const MatrixShape& shape, const float* logits,
                                const LossTargets& targets, const LossPiece& piece, float* gradient,
                                LossSums* sums) {
  const auto run = [&](auto rows) {
    rows.logits = logits;
    rows.labels = targets.labels;
    rows.targets = targets.targets;
    rows.gradient = gradient;
    Run(shape, piece, rows, sums);
  };
  if (targets.targets != nullptr) {
    run(cuda::SquareRows<true>{});
  } else {
    run(cuda::SquareRows<false>{});
  }
}

}  // namespace tessera
