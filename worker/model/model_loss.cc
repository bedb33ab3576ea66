#include "worker/model/model_loss.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tessera {

absl::Status CheckLoss(const v1::Model& model) {
  if (model.loss() == kSoftmax || model.loss() == kSigmoid) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("model.loss: got \"", model.loss(), "\", want ", kSoftmax, " or ", kSigmoid));
}

void ComputeLoss(const v1::Model& model, const Batch& batch, int64_t outputs, const float* logits,
                 float* gradient, LossSums* sums, Backend& backend) {
  const MatrixShape matrix{batch.rows, outputs};
  const LossPiece piece{batch.minibatch_rows,
                        batch.is_first() ? WriteMode::kOverwrite : WriteMode::kAdd};
  if (model.loss() == kSoftmax) {
    backend.loss().SoftmaxCrossEntropy(matrix, logits, batch.labels, piece, gradient, sums);
    return;
  }
  LossTargets targets{batch.labels, batch.targets};
  if (batch.targets != nullptr) targets.labels = nullptr;
  backend.loss().SigmoidCrossEntropy(matrix, logits, targets, piece, gradient, sums);
}

Scores ScoresOf(const LossSums& sums, int64_t rows) {
  Scores scores{sums.loss, sums.correct, rows, {}};
  std::copy(std::begin(sums.hits), std::end(sums.hits), scores.precision_hits.begin());
  return scores;
}

}  // namespace tessera
