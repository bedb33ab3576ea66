// What a model's back gives to its front: the gradient of the activations that it reads.
#ifndef TESSERA_WORKER_MODEL_BACK_HALF_H_
#define TESSERA_WORKER_MODEL_BACK_HALF_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/host_view.h"
#include "worker/model/network_options.h"
#include "worker/model/plan.h"
#include "worker/model/training_pass.h"

namespace tessera {

// Follows each of the network's TrainingSteps.
//
// Threading: one thread at a time, the backend's.
class BackHalf {
 public:
  // The arguments outlive it. kResourceExhausted: no memory.
  static absl::StatusOr<std::unique_ptr<BackHalf>> Create(const NetworkPlan& plan,
                                                          const NetworkOptions& options,
                                                          TrainingPass& pass, Backend& backend);

  // Waits for all that is queued, and returns the gradient of the mean loss of the batch that was begun last with
  // respect to its inputs: [rows, inputs]. It lives until the next one is begun. kFailedPrecondition: the network is no
  // back, or has taken no step.
  absl::StatusOr<absl::Span<const float>> InputGradient();
  // Others wait for the input's gradient, so that a step leaves the gradients of the back's first layer, where it
  // is a product, for this, which queues them: once behind every step, the batch being where it was, and no other
  // step begun.
  void Finish() { pass_.FinishBackward(); }

 private:
  BackHalf(const NetworkPlan& plan, TrainingPass& pass, Backend& backend)
      : plan_(plan), pass_(pass), backend_(backend) {}

  const NetworkPlan& plan_;
  TrainingPass& pass_;
  Backend& backend_;
  HostView<float> view_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_BACK_HALF_H_
