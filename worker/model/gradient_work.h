// What follows on gradients in a network's backward pass.
#ifndef TESSERA_WORKER_MODEL_GRADIENT_WORK_H_
#define TESSERA_WORKER_MODEL_GRADIENT_WORK_H_

#include "worker/model/stage.h"

namespace tessera {

// Work that follows each gradient while the layers before are at work: a local optimizer's, for one.
class GradientWork {
 public:
  virtual ~GradientWork() = default;
  // The gradient of parameter i is there, of all rows of the minibatch, and the last thing queued in this
  // step that reads the parameter. Calls kernels and Memory::Fetch, the same ones in every step.
  virtual void Queue(int i) = 0;
  // In the place of Queue, of weight i, whose gradient is this product, not there, and wanted by nobody else: does
  // with the product what Queue does with the gradient. False: nothing was queued, and the gradient is to be there
  // first. The same answer for the same product in every step, as steps are repeated.
  virtual bool QueueProduct(int i, const WeightProduct& product) { return false; }
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_GRADIENT_WORK_H_
