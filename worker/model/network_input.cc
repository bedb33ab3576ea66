#include "worker/model/network_input.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "worker/model/model_loss.h"

namespace tessera {

absl::Status NetworkInput::CheckRows(const Batch& batch) const {
  if (batch.rows < 1 || batch.rows > batch_max_) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch: rows is ", batch.rows, ", want between 1 and ", batch_max_));
  }
  return CheckInputs(batch);
}

absl::Status NetworkInput::Check(const Batch& batch) const {
  TESSERA_RETURN_IF_ERROR(CheckRows(batch));
  TESSERA_RETURN_IF_ERROR(CheckPart(batch));
  return is_front() ? absl::OkStatus() : CheckLabels(batch);
}

absl::Status NetworkInput::CheckTokens(const Batch& batch) const {
  const auto vocabulary = static_cast<float>(plan_.shape.vocabulary);
  for (int64_t i = 0; i < batch.rows * inputs(); ++i) {
    const float token = batch.inputs[i];
    // NaN passes none of these comparisons. A token out of range would read beyond the embedding's weight.
    if (token >= 0 && token < vocabulary && token == std::floor(token)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("batch: token ", i % inputs(), " of row ", i / inputs(), " is ", token,
                     ", want a whole number between 0 and ", plan_.shape.vocabulary - 1));
  }
  return absl::OkStatus();
}

absl::Status NetworkInput::CheckInputs(const Batch& batch) const {
  if (!reads_sparse_) {
    if (batch.inputs == nullptr) {
      return absl::InvalidArgumentError("batch: inputs is null, want values");
    }
    return plan_.shape.vocabulary > 0 ? CheckTokens(batch) : absl::OkStatus();
  }
  if (batch.sparse.begin == nullptr) {
    return absl::InvalidArgumentError("batch: there are no sparse rows, want some");
  }
  for (int64_t e = batch.sparse.begin[0]; e < batch.sparse.begin[batch.rows]; ++e) {
    // The kernels trust columns, and rows of files may hold any.
    const int32_t column = batch.sparse.column[e];
    if (column >= 0 && column < inputs()) continue;
    return absl::InvalidArgumentError(absl::StrCat("batch: column of entry ", e, " is ", column,
                                                   ", want between 0 and ", inputs() - 1));
  }
  return absl::OkStatus();
}

absl::Status NetworkInput::CheckPart(const Batch& batch) const {
  const bool is_back = plan_.part == ModelPart::kBack;
  if (!is_back && (batch.adds || batch.more)) {
    return absl::InvalidArgumentError(
        "batch: its gradients are added to others, want that of a model's back only");
  }
  // The first batch has nothing to add to.
  if (batch.adds && !has_taken_) {
    return absl::InvalidArgumentError("batch: it adds, and there was none before it");
  }
  if (plan_.part == ModelPart::kWhole || (batch.is_first() && batch.is_last())) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("batch: rows are ", batch.rows,
                                                 " of a minibatch of ", batch.minibatch_rows,
                                                 ", want all of them for a half of a model"));
}

absl::Status NetworkInput::CheckLabels(const Batch& batch) const {
  const bool sigmoid = loss_ == kSigmoid;
  const bool takes_targets = loss_ != kSoftmax;
  if (batch.labels == nullptr && (batch.targets == nullptr || !takes_targets)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "batch: labels is null, want labels", takes_targets ? " or targets" : "", " for ", loss_));
  }
  if (batch.targets != nullptr && takes_targets) return absl::OkStatus();
  // A single sigmoid has the labels 0 and 1.
  const int64_t labels = sigmoid && outputs() == 1 ? 2 : outputs();
  const int64_t places = plan_.shape.places();
  for (int64_t row = 0; row < batch.rows * places; ++row) {
    if (batch.labels[row] < 0 || batch.labels[row] >= labels) {
      return absl::InvalidArgumentError(absl::StrCat("batch: label of row ", row / places, " is ",
                                                     batch.labels[row], ", want between 0 and ",
                                                     labels - 1));
    }
  }
  return absl::OkStatus();
}

void NetworkInput::DropNext() {
  // Its place is the next one's, as those of the batches before are still read.
  if (holds_next()) staging_.TakeBack();
  next_ = Batch();
}

absl::StatusOr<Batch> NetworkInput::Take(const Batch& batch) {
  // Everything is checked before anything is queued: a batch that is refused changes nothing.
  TESSERA_RETURN_IF_ERROR(Check(batch));
  Batch read = batch;
  // The front of a model has no loss. Labels stay on this worker's host.
  if (is_front()) {
    read.labels = nullptr;
    read.targets = nullptr;
  }
  return Stage(read);
}

absl::StatusOr<Batch> NetworkInput::TakeInputs(const Batch& batch) {
  TESSERA_RETURN_IF_ERROR(CheckRows(batch));
  Batch read = batch;
  read.labels = nullptr;
  read.targets = nullptr;
  return Stage(read);
}

absl::StatusOr<Batch> NetworkInput::Stage(const Batch& batch) {
  // A batch that was sent ahead and not used gives its place back first.
  DropNext();
  TESSERA_ASSIGN_OR_RETURN(const Batch read, staging_.Stage(batch, widths()));
  has_taken_ = true;
  return read;
}

absl::Status NetworkInput::SendNext(const Batch& batch) {
  TESSERA_CHECK(wants_next() && !holds_next());
  TESSERA_ASSIGN_OR_RETURN(next_, Take(batch));
  return absl::OkStatus();
}

Batch NetworkInput::TakeNext() {
  TESSERA_CHECK(holds_next());
  return std::exchange(next_, Batch());
}

BatchPlace NetworkInput::Room(int64_t rows, bool has_labels) {
  DropNext();
  return staging_.Room(rows, widths(), has_labels);
}

}  // namespace tessera
