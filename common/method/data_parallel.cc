// Data parallel SGD (bulk synchronous).
//   payload      gradient of one minibatch      key set  dense      codec  any
//   consistency  barrier                        rule     the job's optimizer, fed the mean gradient
// w <- w - eta * (1/K) sum_k g_k.  Per worker and step: up 4n bytes, down 4n bytes, one round trip.
#include "common/method/methods.h"

#include "common/consistency/barrier.h"

namespace tessera {

Recipe DataParallel(const v1::Job& job) {
  Recipe recipe;
  recipe.name = "data_parallel";
  recipe.description =
      "synchronous: every step waits for the gradients of all workers, and the servers apply their "
      "mean";
  recipe.local_steps = 1;
  recipe.lockstep = true;
  recipe.make_policy = MakeBarrier;
  ApplyOptimizer(job, &recipe);
  return recipe;
}

}  // namespace tessera
