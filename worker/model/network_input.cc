#include "worker/model/network_input.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "worker/model/model_loss.h"

namespace tessera {

absl::Status NetworkInput::Check(const Batch& batch) const {
  if (batch.rows < 1 || batch.rows > batch_max_) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch: rows is ", batch.rows, ", want between 1 and ", batch_max_));
  }
  TESSERA_RETURN_IF_ERROR(CheckInputs(batch));
  TESSERA_RETURN_IF_ERROR(CheckPart(batch));
  return is_front() ? absl::OkStatus() : CheckLabels(batch);
}

absl::Status NetworkInput::CheckInputs(const Batch& batch) const {
  if (!reads_sparse_) {
    if (batch.inputs != nullptr) return absl::OkStatus();
    return absl::InvalidArgumentError("batch: inputs is null, want values");
  }
  if (batch.sparse.begin == nullptr) {
    return absl::InvalidArgumentError("batch: there are no sparse rows, want some");
  }
  for (int64_t e = batch.sparse.begin[0]; e < batch.sparse.begin[batch.rows]; ++e) {
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
  for (int64_t row = 0; row < batch.rows; ++row) {
    if (batch.labels[row] < 0 || batch.labels[row] >= labels) {
      return absl::InvalidArgumentError(absl::StrCat("batch: label of row ", row, " is ",
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
  TESSERA_RETURN_IF_ERROR(Check(batch));
  DropNext();
  Batch read = batch;
  if (is_front()) {
    read.labels = nullptr;
    read.targets = nullptr;
  }
  TESSERA_ASSIGN_OR_RETURN(read, staging_.Stage(read, inputs(), outputs()));
  has_taken_ = true;
  return read;
}

absl::StatusOr<Batch> NetworkInput::TakeInputs(const Batch& batch) {
  TESSERA_RETURN_IF_ERROR(CheckInputs(batch));
  DropNext();
  Batch read = batch;
  read.labels = nullptr;
  read.targets = nullptr;
  return staging_.Stage(read, inputs(), outputs());
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
  return staging_.Room(rows, reads_sparse_ ? 0 : inputs(), has_labels, is_front() ? 0 : outputs());
}

}  // namespace tessera
