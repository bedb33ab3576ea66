// Asynchronous SGD (Downpour).  Dean et al.: Large Scale Distributed Deep Networks, NIPS 2012.
//   payload      gradient, or delta if J > 1    key set  dense      codec  any
//   consistency  none, weight lambda(tau)       rule     the job's optimizer; add for deltas
// Each push is applied when it arrives; tau = version when applied - version when pulled.
// Weights that fall with tau: Zhang, Gupta, Lian, Liu, IJCAI 2016.
// Per worker and J steps: up 4n bytes, down 4n bytes, nobody waits.
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/consistency/none.h"
#include "common/method/catalog.h"
#include "common/method/shared_parts.h"
#include "common/method/staleness.h"
#include "common/rule/add.h"

namespace tessera {
namespace {

absl::StatusOr<Recipe> AsyncSgdRecipe(const v1::Job& job) {
  const v1::AsyncSgd& keys = job.method().async_sgd();
  const StalenessWeight weight = WeightOf(keys.staleness());
  Recipe recipe;
  recipe.name = "async_sgd";
  recipe.local_steps = keys.local_steps();
  recipe.description =
      absl::StrCat("asynchronous: each push is applied when it arrives, however stale, with ",
                   WeightInWords(weight), "; nobody waits for anybody");
  recipe.lockstep = false;
  // A push is an update of its own, not a share of a mean.
  recipe.push_weight = PushWeight::kWhole;
  recipe.aligned = false;
  recipe.make_policy = [weight] { return MakeNone(weight); };
  if (recipe.local_steps > 1) {
    // A delta holds the learning rate already; the server adds it.
    recipe.payload = PayloadKind::kDelta;
    recipe.make_rule = MakeAdd;
  } else {
    ApplyOptimizer(job, &recipe);
  }
  return recipe;
}

}  // namespace

extern const Method kAsyncSgd = {v1::Method::kAsyncSgd, AsyncSgdRecipe};

}  // namespace tessera
