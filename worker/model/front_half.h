// The steps of a model's front, which ends where the model is cut and has no loss of its own.
#ifndef TESSERA_WORKER_MODEL_FRONT_HALF_H_
#define TESSERA_WORKER_MODEL_FRONT_HALF_H_

#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/host_view.h"
#include "worker/model/batch.h"
#include "worker/model/gradient_work.h"
#include "worker/model/network_input.h"
#include "worker/model/network_options.h"
#include "worker/model/plan.h"
#include "worker/model/training_pass.h"

namespace tessera {

// One step at a time. BeginForward queues the forward pass; labels are not read. To begin another step drops it.
// Activations waits for those at the cut: [rows, outputs], rows of [channels, height, width]; they live until the next
// step is begun. FinishStep takes the gradient of the mean loss with respect to them, of the same shape and the
// caller's again on return, and queues the backward pass, which leaves gradients as TrainingSteps does. The step is
// over then.
//
// Threading: one thread at a time, the backend's.
class FrontHalf {
 public:
  // The arguments outlive it. kResourceExhausted: no memory.
  static absl::StatusOr<std::unique_ptr<FrontHalf>> Create(const NetworkPlan& plan,
                                                           const NetworkOptions& options,
                                                           NetworkInput& input, TrainingPass& pass,
                                                           Backend& backend);

  //   kInvalidArgument     with nothing changed: a batch as NetworkInput::Take refuses it; a gradient of another size
  //   kFailedPrecondition  the network is no front; no step is begun; of ...OnNext: no batch was sent ahead
  absl::Status BeginForward(const Batch& batch, const StepKey& key);
  absl::Status BeginForwardOnNext(const StepKey& key);
  absl::StatusOr<absl::Span<const float>> Activations();
  // `work` as TrainingSteps::BeginStep's.
  absl::Status FinishStep(absl::Span<const float> gradient, GradientWork* work = nullptr);

 private:
  FrontHalf(const NetworkPlan& plan, NetworkInput& input, TrainingPass& pass, Backend& backend)
      : plan_(plan), input_(input), pass_(pass), backend_(backend) {}
  bool is_front() const { return plan_.part == ModelPart::kFront; }
  absl::Status Queue(const Batch& staged, const StepKey& key);
  absl::Status Wait();

  const NetworkPlan& plan_;
  NetworkInput& input_;
  TrainingPass& pass_;
  Backend& backend_;
  // The step that was begun and not finished, and its end of the forward pass while none has waited for it.
  std::optional<StepForm> step_;
  std::optional<Backend::Moment> known_;
  HostView<float> activations_view_;
  HostView<float> gradient_view_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_FRONT_HALF_H_
