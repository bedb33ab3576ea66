#include "worker/model/gradient_clip.h"

#include "common/base/check.h"

namespace tessera {

absl::StatusOr<std::unique_ptr<GradientClip>> GradientClip::Create(double clip_norm,
                                                                   Backend& backend) {
  if (clip_norm == 0) return nullptr;
  std::unique_ptr<GradientClip> clip(new GradientClip(static_cast<float>(clip_norm), backend));
  TESSERA_ASSIGN_OR_RETURN(clip->factor_, Buffer<float>::Create(backend.memory(), 1));
  return clip;
}

void GradientClip::Queue(Network* network) {
  // A weight that steps without a gradient would be missing in the norm.
  TESSERA_CHECK(!network->pass().steps_first_weight());
  // What pads the parameters is zero, and stays so.
  float* const gradients = network->arrays().GradientAt(0);
  const int64_t floats = network->plan().parameter_floats;
  // PyTorch's clip_grad_norm_ adds as much to the norm, which may be 0.
  constexpr float kEpsilon = 1e-6f;
  backend_.vector().NormFactor(floats, gradients, {clip_norm_, kEpsilon, 1}, factor_.data());
  backend_.vector().ScaleBy(floats, factor_.data(), gradients);
}

}  // namespace tessera
