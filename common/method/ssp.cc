// Stale synchronous parallel.  Ho et al.: More Effective Distributed ML via a Stale Synchronous
// Parallel Parameter Server, NIPS 2013.
//   payload      delta of J local steps         key set  dense      codec  any
//   consistency  ssp(bound), weight 1/K         rule     add
// w <- w + (1/K) delta_k at each push, K = cluster.workers.
// Per worker and J steps: up 4n bytes, down 4n bytes; who is more than `bound` exchanges ahead of the
// slowest waits.
#include <algorithm>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/consistency/ssp.h"
#include "common/method/catalog.h"
#include "common/rule/add.h"

namespace tessera {
namespace {

absl::StatusOr<Recipe> SspRecipe(const v1::Job& job) {
  const int64_t bound = job.method().ssp().bound();
  const int64_t workers = std::max<int64_t>(1, job.cluster().workers());
  Recipe recipe;
  recipe.name = "ssp";
  recipe.local_steps = job.method().ssp().local_steps();
  recipe.description =
      absl::StrCat("stale synchronous: each change is added when it arrives, with weight 1/",
                   workers, "; a worker more than ", bound, bound == 1 ? " exchange" : " exchanges",
                   " ahead of the slowest waits for it");
  recipe.payload = PayloadKind::kDelta;
  recipe.lockstep = false;
  recipe.push_weight = PushWeight::kOfRanks;
  // The paper adds each change with weight 1 / K, whoever else is there at the moment.
  recipe.make_policy = [bound, workers] { return MakeSsp(bound, 1.0f / workers); };
  recipe.make_rule = MakeAdd;
  return recipe;
}

}  // namespace

extern const Method kSsp = {v1::Method::kSsp, SspRecipe};

}  // namespace tessera
