// Local SGD, or parameter averaging: every J local steps the replicas are averaged.
//   payload      delta of J local steps         key set  dense      codec  any
//   consistency  barrier                        rule     mean, add
// w <- w + (1/K) sum_k delta_k.  Per worker and J steps: up 4n bytes, down 4n, one round trip; with
// average_state as many again for each state of the optimizer.
//
// overlap           CoCoD-SGD (Shen, Xu, Liu, Liang, Cheng: IJCAI 2019, arXiv 1906.12043)
#include "common/method/methods.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/consistency/barrier.h"
#include "common/rule/add.h"
#include "common/rule/optimizer.h"

namespace tessera {

Recipe LocalSgd(const v1::Job& job) {
  const v1::LocalSgd& keys = job.method().local_sgd();
  Recipe recipe;
  recipe.name = "local_sgd";
  recipe.local_steps = keys.local_steps();
  recipe.description =
      absl::StrCat("synchronous every ", recipe.local_steps,
                   " steps: workers train on their own in between, and the servers add the "
                   "mean of their changes");
  if (keys.average_state()) {
    recipe.averaged_states = StateNames(job.train().optimizer());
    absl::StrAppend(&recipe.description, "; the optimizers' state (",
                    absl::StrJoin(recipe.averaged_states, ", "), ") is averaged as well");
  }
  if (keys.overlap()) Overlap(&recipe);
  recipe.payload = PayloadKind::kDelta;
  recipe.lockstep = true;
  recipe.make_policy = MakeBarrier;
  recipe.make_rule = MakeAdd;
  return recipe;
}

}  // namespace tessera
