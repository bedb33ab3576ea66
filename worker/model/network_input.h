// How batches come to a network.
#ifndef TESSERA_WORKER_MODEL_NETWORK_INPUT_H_
#define TESSERA_WORKER_MODEL_NETWORK_INPUT_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/memory.h"
#include "worker/model/batch.h"
#include "worker/model/batch_staging.h"
#include "worker/model/network_options.h"
#include "worker/model/plan.h"

namespace tessera {

// Checks batches and brings them to where kernels read them. A device that works on its own may be sent the next batch
// while it is at work on the last one.
//
// Threading: one thread at a time, the backend's.
class NetworkInput {
 public:
  // `plan` and `memory` outlive it. `loss`: that of the model.
  NetworkInput(const NetworkPlan& plan, std::string loss, const NetworkOptions& options,
               Memory& memory)
      : plan_(plan),
        loss_(std::move(loss)),
        batch_max_(options.batch_max),
        reads_sparse_(options.sparse_input),
        memory_(memory),
        staging_(&memory) {}

  // Whether the device works on its own, so that it is worth while to begin a step before the last is ended.
  bool runs_ahead() const { return !memory_.host_addressable(); }
  // Where it does: dense batches may be sent ahead, behind the beginning of a step, and the next step may be on
  // what was sent. A batch that is not used is dropped.
  bool wants_next() const { return !reads_sparse_ && runs_ahead(); }
  bool holds_next() const { return next_.rows > 0; }
  // Sends a batch ahead of the step that will take it. Codes as Take's.
  absl::Status SendNext(const Batch& batch);

  // Where the next batch that any call is given may be written, with labels or targets; elsewhere it is
  // copied first. Drops what was sent ahead.
  BatchPlace Room(int64_t rows, bool has_labels);

  // For the network's passes: `batch` where kernels read it (BatchStaging::Stage). Drops what was sent ahead. A
  // model's front reads no labels. With nothing changed, kInvalidArgument: rows outside [1, batch_max], no labels or
  // targets, a label that the model does not have; a piece of a minibatch for a half; Batch::adds or more for a network
  // that is no model's back, or adds in its first batch.
  absl::StatusOr<Batch> Take(const Batch& batch);
  // Take, of rows whose labels and targets nobody reads: they may be null.
  absl::StatusOr<Batch> TakeInputs(const Batch& batch);
  // Takes the batch that was sent ahead.
  Batch TakeNext();
  // kInvalidArgument: the batch's inputs are not what the network reads.
  absl::Status CheckInputs(const Batch& batch) const;

 private:
  absl::Status CheckRows(const Batch& batch) const;
  absl::Status Check(const Batch& batch) const;
  absl::Status CheckTokens(const Batch& batch) const;
  // Brings a batch that was checked to where kernels read it.
  absl::StatusOr<Batch> Stage(const Batch& batch);
  absl::Status CheckPart(const Batch& batch) const;
  absl::Status CheckLabels(const Batch& batch) const;
  void DropNext();
  bool is_front() const { return plan_.part == ModelPart::kFront; }
  int64_t inputs() const { return plan_.shape.inputs(); }
  int64_t outputs() const { return plan_.shape.outputs(); }
  BatchStaging::RowWidths widths() const {
    return {reads_sparse_ ? 0 : inputs(), is_front() ? 0 : outputs(), plan_.shape.places()};
  }

  const NetworkPlan& plan_;
  const std::string loss_;
  const int64_t batch_max_;
  const bool reads_sparse_;
  Memory& memory_;
  BatchStaging staging_;
  Batch next_;  // as it was staged; no rows: there is none
  bool has_taken_ = false;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_NETWORK_INPUT_H_
