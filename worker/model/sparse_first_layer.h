// The backward pass of a first layer that reads sparse rows, and the step that moves its weight without a gradient.
#ifndef TESSERA_WORKER_MODEL_SPARSE_FIRST_LAYER_H_
#define TESSERA_WORKER_MODEL_SPARSE_FIRST_LAYER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "worker/model/batch.h"
#include "worker/model/gradient_delivery.h"
#include "worker/model/network_arrays.h"
#include "worker/model/network_options.h"
#include "worker/model/plan.h"
#include "worker/model/sparse_linear_stage.h"

namespace tessera {

class SparseFirstLayer {
 public:
  // The arguments outlive it. kResourceExhausted: no memory.
  static absl::StatusOr<std::unique_ptr<SparseFirstLayer>> Create(const NetworkPlan& plan,
                                                                  const NetworkOptions& options,
                                                                  SparseLinearStage* stage,
                                                                  NetworkArrays& arrays,
                                                                  Backend& backend);

  // A step is queued on `batch`, which fits: what the last one left for Step is forgotten.
  void Begin(const Batch& batch);
  // Queues the gradients of the layer's parameters, but for the weight's with steps_first_weight.
  void Backward(const Batch& batch, const float* dy, GradientDelivery* delivery);
  // Queues, with steps_first_weight: adds `a` times the weight's gradient to it, in the columns of the minibatch alone,
  // whose rows are still there.
  void Step(float a);

 private:
  SparseFirstLayer(const NetworkPlan& plan, const NetworkOptions& options, SparseLinearStage* stage,
                   NetworkArrays& arrays, Backend& backend)
      : layer_(plan.stages[0]),
        steps_weight_(options.steps_first_weight),
        stage_(*stage),
        arrays_(arrays),
        backend_(backend) {}

  const StagePlan& layer_;
  const bool steps_weight_;
  SparseLinearStage& stage_;
  NetworkArrays& arrays_;
  Backend& backend_;
  // What Step works on; no rows after it.
  Batch last_batch_;
  const float* last_dy_ = nullptr;
  Buffer<float> all_dy_;  // of all pieces, where there may be several
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_SPARSE_FIRST_LAYER_H_
