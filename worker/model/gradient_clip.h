// Clipping of a minibatch's gradient by its norm, as PyTorch's torch.nn.utils.clip_grad_norm_:
//   g *= min(1, clip_norm / (|g| + 1e-6))
// where |g| is the norm over all of the network's parameters.
#ifndef TESSERA_WORKER_MODEL_GRADIENT_CLIP_H_
#define TESSERA_WORKER_MODEL_GRADIENT_CLIP_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "worker/model/network.h"

namespace tessera {

// A network that is clipped must have the gradients of all of its parameters (not Options::steps_first_weight), and
// nothing may have read them before.
//
// Threading: the networks' thread.
class GradientClip {
 public:
  // Null where clip_norm is 0, which is off. `backend` outlives it. kResourceExhausted: no memory.
  static absl::StatusOr<std::unique_ptr<GradientClip>> Create(double clip_norm, Backend& backend);

  // Queued, behind the backward pass of a minibatch's last rows: its gradients become the clipped ones. The same bits
  // for any number of threads; a gradient that is short enough keeps its bits. The batches have held their gradients
  // (Batch::holds_gradients), so that none is on its way to the host.
  void Queue(Network* network);

 private:
  GradientClip(float clip_norm, Backend& backend) : clip_norm_(clip_norm), backend_(backend) {}

  const float clip_norm_;
  Backend& backend_;
  Buffer<float> factor_;  // of the gradient at hand
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_GRADIENT_CLIP_H_
