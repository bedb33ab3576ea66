// Asynchronous SGD (Downpour).  Dean et al.: Large Scale Distributed Deep Networks, NIPS 2012.
//   payload      gradient, or delta if J > 1    key set  dense      codec  f32
//   consistency  none, weight lambda(tau)       rule     the job's optimizer; add for deltas
// Each push is applied when it arrives; tau = version when applied - version pulled.
// Per worker and J steps: up 4n bytes, down 4n bytes, nobody waits.
#include "common/method/methods.h"

#include "absl/strings/str_cat.h"
#include "common/consistency/none.h"
#include "common/rule/add.h"

namespace tessera {

Recipe AsyncSgd(const v1::Job& job) {
  const v1::AsyncSgd& keys = job.method().async_sgd();
  const float scale = keys.staleness().has_constant() ? keys.staleness().constant().scale() : 1.0f;
  Recipe recipe;
  recipe.name = "async_sgd";
  recipe.local_steps = keys.local_steps();
  recipe.description = absl::StrCat(
      "asynchronous: each push is applied when it arrives, however stale, with weight ", scale,
      "; nobody waits for anybody");
  recipe.lockstep = false;
  recipe.make_policy = [scale] { return MakeNone(scale); };
  if (recipe.local_steps > 1) {
    recipe.payload = PayloadKind::kDelta;
    recipe.make_rule = MakeAdd;
  } else {
    recipe.payload = PayloadKind::kGradient;
    recipe.make_rule = [optimizer = job.train().optimizer()] { return OptimizerRule(optimizer); };
  }
  return recipe;
}

}  // namespace tessera
