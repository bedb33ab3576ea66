// Decentralised training: no central server, a replica beside every worker.  Strom: Scalable Distributed
// DNN Training Using Commodity GPU Cloud Computing, Interspeech 2015.
//   payload      delta of J local steps         key set  dense      codec  threshold(density)
//   consistency  none                           rule     add
//   placement    replicated: pushes go to every server, pulls stay beside the worker
// w <- w + delta_k on every replica, in the order of arrival.  Per worker and J steps: up (K - 1) times
// a push, to the peers; nothing comes down.  Replicas are equal, but for rounding, once all pushes have
// arrived.
#include "common/method/methods.h"

#include "absl/strings/str_cat.h"
#include "common/codec/threshold.h"
#include "common/consistency/none.h"
#include "common/rule/add.h"

namespace tessera {

Recipe Decentralized(const v1::Job& job) {
  const v1::Decentralized& keys = job.method().decentralized();
  Recipe recipe;
  recipe.name = "decentralized";
  recipe.local_steps = keys.local_steps();
  recipe.description = absl::StrCat(
      "decentralised: every worker has a replica of the model beside it and sends its changes",
      keys.local_steps() == 1 ? "" : absl::StrCat(" of every ", keys.local_steps(), " steps"),
      " to all of them; each is added when it arrives, and nobody waits for anybody");
  recipe.payload = PayloadKind::kDelta;
  recipe.placement = Placement::kReplicated;
  recipe.warmup_steps = keys.warmup_steps();
  if (recipe.warmup_steps > 0) {
    absl::StrAppend(&recipe.description, "; worker 0 trains ", recipe.warmup_steps,
                    " steps before the others begin");
  }
  ThresholdNumbers numbers;
  numbers.density = keys.density();
  recipe.codecs.push = ThresholdCodec(numbers);
  recipe.lockstep = false;
  recipe.push_weight = PushWeight::kWhole;
  recipe.aligned = false;
  recipe.make_policy = [] { return MakeNone(1.0f); };
  recipe.make_rule = MakeAdd;
  return recipe;
}

}  // namespace tessera
