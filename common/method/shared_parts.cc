#include "common/method/shared_parts.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/consistency/barrier.h"
#include "common/rule/optimizer.h"

namespace tessera {

Recipe MeanOfGradients(const v1::Job& job) {
  Recipe recipe;
  recipe.description =
      "synchronous: every step waits for the gradients of all workers, and the servers apply their "
      "mean";
  recipe.local_steps = 1;
  recipe.lockstep = true;
  recipe.make_policy = MakeBarrier;
  ApplyOptimizer(job, &recipe);
  return recipe;
}

void ApplyOptimizer(const v1::Job& job, Recipe* recipe) {
  const v1::Optimizer& optimizer = job.train().optimizer();
  recipe->payload = PayloadKind::kGradient;
  recipe->schedule = RateSchedule(job.train().schedule());
  // A server makes a rule of its own, as the rule's state is the shard's.
  recipe->make_rule = [optimizer] { return MakeOptimizer(optimizer); };
  recipe->rule_states = StateNames(optimizer);
}

void Overlap(Recipe* recipe) {
  recipe->overlaps = true;
  absl::StrAppend(&recipe->description,
                  "; what an exchange brings is taken up one exchange later, and training goes on "
                  "meanwhile");
}

void CheckPushes(const v1::Job& job, const std::string& key, int64_t pushes, KeyErrors* errors) {
  const int64_t workers = std::max<int64_t>(1, job.cluster().workers());
  if (!errors->Sound(key) || !errors->Sound("cluster.workers") || pushes <= workers) return;
  errors->Add(key, absl::StrCat("got ", pushes, ", want at most ", workers,
                                ", the number of workers (cluster.workers)"));
}

}  // namespace tessera
