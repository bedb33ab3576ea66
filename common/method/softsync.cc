// Softsync.  Zhang, Gupta, Lian, Liu: Staleness-aware Async-SGD, IJCAI 2016.
//   payload      gradient, or delta if J > 1    key set  dense      codec  any
//   consistency  softsync(s), lambda(tau) / s   rule     the job's optimizer; add for deltas
// u = (1/s) sum over s pushes of lambda(tau_j) g_j.  The paper's n-softsync is s = floor(K / n).
// Per worker and J steps: up 4n bytes, down 4n bytes, nobody waits.
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/consistency/softsync.h"
#include "common/method/catalog.h"
#include "common/method/shared_parts.h"
#include "common/method/staleness.h"
#include "common/rule/add.h"

namespace tessera {
namespace {

absl::StatusOr<Recipe> SoftsyncRecipe(const v1::Job& job) {
  const v1::Softsync& keys = job.method().softsync();
  const StalenessWeight weight = WeightOf(keys.staleness());
  const int64_t pushes = keys.pushes();
  Recipe recipe;
  recipe.name = "softsync";
  recipe.local_steps = keys.local_steps();
  recipe.description = absl::StrCat("softsync: the servers apply the mean of every ", pushes,
                                    " pushes, of whichever workers, ", "each with ",
                                    WeightInWords(weight), "; nobody waits for anybody");
  recipe.lockstep = false;
  recipe.push_weight = PushWeight::kOfSome;
  recipe.pushes = pushes;
  // Workers are at steps of their own: an exchange's number says nothing about the others.
  recipe.aligned = false;
  recipe.make_policy = [pushes, weight] { return MakeSoftsync(pushes, weight); };
  if (recipe.local_steps > 1) {
    recipe.payload = PayloadKind::kDelta;
    recipe.make_rule = MakeAdd;
  } else {
    ApplyOptimizer(job, &recipe);
  }
  return recipe;
}

void CheckSoftsync(const v1::Job& job, KeyErrors* errors) {
  CheckPushes(job, "method.softsync.pushes", job.method().softsync().pushes(), errors);
}

}  // namespace

extern const Method kSoftsync = {v1::Method::kSoftsync, SoftsyncRecipe, CheckSoftsync};

}  // namespace tessera
