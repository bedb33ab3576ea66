// Local SGD, or parameter averaging: every J local steps the replicas are averaged.
//   payload      delta of J local steps         key set  dense      codec  f32
//   consistency  barrier                        rule     mean, add
// w <- w + (1/K) sum_k delta_k.  Per worker and J steps: up 4n bytes, down 4n, one round trip.
#include "common/method/methods.h"

#include "absl/strings/str_cat.h"
#include "common/consistency/barrier.h"
#include "common/rule/add.h"

namespace tessera {

Recipe LocalSgd(const v1::Job& job) {
  Recipe recipe;
  recipe.name = "local_sgd";
  recipe.local_steps = job.method().local_sgd().local_steps();
  recipe.description =
      absl::StrCat("synchronous every ", recipe.local_steps,
                   " steps: workers train on their own in between, and the servers add the "
                   "mean of their changes");
  recipe.payload = PayloadKind::kDelta;
  recipe.lockstep = true;
  recipe.make_policy = MakeBarrier;
  recipe.make_rule = MakeAdd;
  return recipe;
}

}  // namespace tessera
