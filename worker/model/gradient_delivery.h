// Where the gradients of a network's parameters go in the backward pass, and what follows when they are there.
#ifndef TESSERA_WORKER_MODEL_GRADIENT_DELIVERY_H_
#define TESSERA_WORKER_MODEL_GRADIENT_DELIVERY_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "worker/model/batch.h"
#include "worker/model/gradient_work.h"
#include "worker/model/network_arrays.h"
#include "worker/model/plan.h"
#include "worker/model/stage.h"

namespace tessera {

// The gradients of the pieces of a minibatch add up where they are written. Those of batches that make one update
// (Batch::adds) are written apart and then added: a product that went on from the sum that is there would round
// otherwise (and oneDNN's adding products take longer than both).
class GradientDelivery {
 public:
  // The arguments outlive it. kResourceExhausted: no memory.
  static absl::StatusOr<std::unique_ptr<GradientDelivery>> Create(const NetworkPlan& plan,
                                                                  NetworkArrays& arrays,
                                                                  Backend& backend);

  // Where the backward pass of a stage writes the gradients of its parameters.
  StageGradients PlacesOf(const StagePlan& stage, const Batch& batch) const;
  // Queues what follows on a stage's gradients, once they are written where PlacesOf says: they come to the host, where
  // they have a copy there, and `work` takes them, unless it is null; both only where no other rows will add to them.
  void Deliver(const StagePlan& stage, const Batch& batch, GradientWork* work);

  // Queues Stage::Backward, and what follows on the gradients of the stage's parameters. Where the weight's gradient is
  // a product, and nobody else's, `work` may take the product in its place.
  void Backward(const StagePlan& plan, Stage& stage, const Batch& batch, const StageInputs& x,
                const float* y, const float* dy, const InputGradients& dx, GradientWork* work);

 private:
  GradientDelivery(const NetworkPlan& plan, NetworkArrays& arrays, Backend& backend)
      : plan_(plan), arrays_(arrays), backend_(backend) {}
  bool OffersProducts(const Batch& batch, const GradientWork* work) const;
  float* AddedAt(const StagePlan& stage, int parameter) const;

  const NetworkPlan& plan_;
  NetworkArrays& arrays_;
  Backend& backend_;
  Buffer<float> added_;  // of a model's back: one stage's gradients, on their way to the others
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_GRADIENT_DELIVERY_H_
