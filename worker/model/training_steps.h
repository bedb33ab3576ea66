// A network's steps of training, begun by the host and ended when their loss is known.
#ifndef TESSERA_WORKER_MODEL_TRAINING_STEPS_H_
#define TESSERA_WORKER_MODEL_TRAINING_STEPS_H_

#include <cstdint>
#include <optional>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "worker/model/batch.h"
#include "worker/model/gradient_work.h"
#include "worker/model/network_input.h"
#include "worker/model/network_stages.h"
#include "worker/model/plan.h"
#include "worker/model/training_pass.h"

namespace tessera {

// Forward, backward: the gradients become those of the mean loss of the batch. Parameters stay. A model's back takes
// such steps, too, on activations (BackHalf); its front takes others (FrontHalf).
//
// Threading: one thread at a time, the backend's.
class TrainingSteps {
 public:
  // The arguments outlive it.
  TrainingSteps(const NetworkPlan& plan, NetworkInput& input, TrainingPass& pass,
                NetworkStages& stages, Backend& backend)
      : plan_(plan), input_(input), pass_(pass), stages_(stages), backend_(backend) {}

  // On return the loss is known; the backward pass is queued, and its failures are the next call's
  // or Backend::Finish's. The batch may be reused. Values that are not finite are no error: they show in
  // the loss. With nothing changed:
  //   kInvalidArgument     as NetworkInput::Take
  //   kFailedPrecondition  the network is a model's front
  absl::StatusOr<LossAndCount> TrainStep(const Batch& batch, const StepKey& key);

  // TrainStep in two: BeginStep queues it and checks what TrainStep checks, EndStep waits for the
  // loss. Kernels queued in between find the gradients, but for those that `work` had as products. Up to
  // kStepsBegunMax may be begun before the first of them is ended, so that a device has one to compute while
  // the host looks after another.
  // `work`, which stays for as long as the network takes steps, only where it takes_work.
  absl::Status BeginStep(const Batch& batch, const StepKey& key, GradientWork* work = nullptr);
  // Begins a step on the batch that was sent ahead (NetworkInput::SendNext).
  absl::Status BeginStepOnNext(const StepKey& key, GradientWork* work = nullptr);
  absl::StatusOr<LossAndCount> EndStep();  // the first that was begun, whose pieces are all ended
  // A minibatch may be given in pieces (Batch::minibatch_rows), in the order of its rows, each with a
  // Begin call of its own and the same key, of which kStepsBegunMax counts each. EndPiece waits for the first
  // that was begun, and returns the minibatch's loss if it is its last. The gradients add up to those of
  // the whole, from which they differ in the rounding of sums and in what batch norm takes for the
  // minibatch, which is the piece. Work is of the last piece only. With steps_first_weight the sparse rows
  // of all pieces lie in the same arrays, one behind the other.
  absl::StatusOr<std::optional<LossAndCount>> EndPiece();
  // Steps, or pieces, that were begun and not ended.
  int begun() const { return static_cast<int>(begun_.size()); }

  // Whether work may follow each gradient in the backward pass: where the device works on its own, on dense rows.
  bool takes_work() const { return input_.wants_next(); }

 private:
  absl::Status CheckHasLoss() const;
  void Queue(const Batch& staged, const StepKey& key, GradientWork* work);

  // What was begun, and how the host knows that its forward pass is done.
  struct Begun {
    int64_t predictions;  // of the minibatch: each row has one for each of its places
    bool is_last;         // piece of its minibatch
    int sums_place;
    Backend::Moment known;
  };

  const NetworkPlan& plan_;
  NetworkInput& input_;
  TrainingPass& pass_;
  NetworkStages& stages_;
  Backend& backend_;
  absl::InlinedVector<Begun, kStepsBegunMax> begun_;  // in this order
  int64_t rows_done_ = 0;  // of the minibatch that was begun last, those that were begun
  // Places of sums are used by turns, as those of a step are read when the next one is at work.
  int sums_place_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_TRAINING_STEPS_H_
