// What a worker's half of the layers and another worker's say to each other (Recipe::split): activations at the cut
// there, their gradient back. The other kind of exchange, beside that with the servers
// (worker/exchange/parameter_client.h).
//
//   worker with data                          linear worker
//   forward to the cut
//   Exchange(step, activations, labels) --->  Next(step): of each worker that it serves, in rank order
//                                             forward, loss, backward; its gradients add up
//   backward from the cut         <---------  Answer(loss, gradient)
//   push, pull: the front's                   push, pull: those behind, once nobody's batch is missing
//
// Who takes part in a step is in the plan that came with the values of the step before (TrainPoint::plan), so both
// sides wait until they have heard of that plan: then nobody sends to one who has left the job's step before it
// began, and nobody waits for one that does not know of him.
#ifndef TESSERA_WORKER_ACTIVATIONS_ACTIVATION_EXCHANGE_H_
#define TESSERA_WORKER_ACTIVATIONS_ACTIVATION_EXCHANGE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/ids.h"

namespace tessera {

// A batch of activations and what its rows are, as views in row-major order.
struct ActivationBatch {
  uint64_t step = 0;
  // The plan that its sender goes by: see Next.
  Generation plan;
  int64_t rows = 0;
  absl::Span<const float> activations;  // rows x features
  absl::Span<const int32_t> classes;    // one for each row; empty: there are targets
  absl::Span<const float> targets;      // rows x outputs
};

struct ActivationAnswer {
  // The linear layers' gradients of this step had been pushed without the batch, or nobody trains them in this step,
  // but others will in a later one or this worker is to leave: there is no gradient, and nothing to be pushed for it.
  bool too_late = false;
  // The mean loss over the batch.
  double loss = 0;
  // As ActivationBatch::activations. Valid until the next call.
  absl::Span<const float> gradient;
};

// A worker's that has data. One thread, the train loop's.
class ActivationSender {
 public:
  virtual ~ActivationSender() = default;
  // Blocks until the answer is there. Where the linear worker is lost another one is asked; the batch stays as it
  // is meanwhile.
  //   kCancelled        this worker is to end
  //   kUnavailable      the linear worker could not be reached within the retry time, and is not known to be lost
  //   kInvalidArgument  it refuses the batch: sizes, or a value that is not finite; kUnauthenticated,
  //                     kPermissionDenied: it refuses this worker
  virtual absl::StatusOr<ActivationAnswer> Exchange(const ActivationBatch& batch) = 0;
  // The bytes of values that were exchanged so far, in both directions.
  virtual int64_t payload_bytes() const = 0;
};

// A linear worker's. One thread, the train loop's.
class ActivationReceiver {
 public:
  struct Batch : ActivationBatch {
    Rank sender;
  };

  virtual ~ActivationReceiver() = default;
  // The next batch of `step`, by the senders' ranks, once it is there; views of it are valid until the next call.
  // nullptr: there is none that is still to come. What comes later is told that it is too late. Nothing is returned
  // before this worker knows the members of `plan`.
  //   kCancelled     this worker is to end
  virtual absl::StatusOr<const Batch*> Next(uint64_t step, Generation plan) = 0;
  // Answers the batch that Next has returned last. The gradient's bytes are copied.
  virtual void Answer(double loss, absl::Span<const float> gradient) = 0;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_ACTIVATIONS_ACTIVATION_EXCHANGE_H_
