#include "worker/model/model_loss.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tessera {

absl::Status CheckLoss(const v1::Model& model) {
  for (const absl::string_view known : {kSoftmax, kSigmoid, kSquares}) {
    if (model.loss() == known) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("model.loss: got \"", model.loss(), "\", want ",
                                                 kSoftmax, ", ", kSigmoid, " or ", kSquares));
}

void ComputeLoss(const v1::Model& model, const ModelShape& shape, const Batch& batch,
                 const float* logits, float* gradient, LossSums* sums, Backend& backend) {
  const MatrixShape matrix{batch.rows * shape.places(), shape.outputs()};
  const LossPiece piece{batch.minibatch_rows * shape.places(),
                        batch.is_first() ? WriteMode::kOverwrite : WriteMode::kAdd};
  LossTargets targets{batch.labels, batch.targets};
  if (model.loss() == kSoftmax) {
    // Softmax with probabilities as targets is not offered (NetworkInput has checked that there are labels).
    targets.targets = nullptr;
    if (gradient != nullptr) targets.smoothing = static_cast<float>(model.label_smoothing());
    backend.loss().SoftmaxCrossEntropy(matrix, logits, targets, piece, gradient, sums);
    return;
  }
  if (batch.targets != nullptr) targets.labels = nullptr;
  if (model.loss() == kSquares) {
    backend.loss().MeanSquaredError(matrix, logits, targets, piece, gradient, sums);
  } else {
    backend.loss().SigmoidCrossEntropy(matrix, logits, targets, piece, gradient, sums);
  }
}

Scores ScoresOf(const LossSums& sums, int64_t predictions) {
  Scores scores{sums.loss, sums.correct, predictions, {}, sums.top_hits};
  std::copy(std::begin(sums.hits), std::end(sums.hits), scores.precision_hits.begin());
  return scores;
}

}  // namespace tessera
