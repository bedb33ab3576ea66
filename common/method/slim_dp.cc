// Slim-DP: an exchange moves a core, which is what matters most, and an explorer, drawn at random from
// the rest.  Sun, Chen, Bian, Liu, Liu: Slim-DP, AAAI 2018 (arXiv 1709.09393).
//   payload      delta of p local steps         key set  sparse(core + explorer)    codec  any of fixed size
//   consistency  barrier; asynchronous: none    rule     mean, add; asynchronous: weight 1/K
// w_j <- w_j + (1/K) sum of delta_kj over those that sent j. Each q-th push is of all entries, and the core
// is selected anew from |w| + c |g|.
// Per worker and exchange: up and down 4 alpha n bytes, each q-th up 4n; per core its keys down, n / 8 bytes
// at most.
#include "common/method/methods.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/consistency/barrier.h"
#include "common/consistency/none.h"
#include "common/rule/add.h"

namespace tessera {

Recipe SlimDp(const v1::Job& job) {
  const v1::SlimDp& keys = job.method().slim_dp();
  const float weight = 1.0f / static_cast<float>(std::max<int64_t>(1, job.cluster().workers()));
  Recipe recipe;
  recipe.name = "slim_dp";
  recipe.local_steps = keys.local_steps();
  recipe.description = absl::StrCat(
      "Slim-DP, every ", recipe.local_steps, recipe.local_steps == 1 ? " step" : " steps",
      ": workers exchange ", 100 * keys.alpha(), "% of the entries, of which ", 100 * keys.beta(),
      "% are the core; every ", keys.core_every(),
      " exchanges they push all, and the servers select the core anew");
  recipe.payload = PayloadKind::kDelta;
  recipe.lockstep = !keys.asynchronous();
  recipe.aligned = recipe.lockstep;
  recipe.core = CoreShare{keys.alpha(), keys.beta(), static_cast<uint64_t>(keys.core_every()),
                          keys.gradient_weight()};
  // An exchange that moves all entries has nothing to select.
  if (recipe.core->is_whole()) recipe.core.reset();
  recipe.make_rule = MakeAdd;
  if (keys.asynchronous()) {
    absl::StrAppend(&recipe.description, "; each push is added when it arrives, with weight ",
                    weight, ", and nobody waits for anybody");
    recipe.push_weight = PushWeight::kOfRanks;
    recipe.make_policy = [weight] { return MakeNone(weight); };
  } else {
    absl::StrAppend(&recipe.description, "; the servers add the mean of all pushes");
    recipe.make_policy = MakeBarrier;
  }
  return recipe;
}

}  // namespace tessera
