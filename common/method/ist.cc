// Independent subnet training.  Yuan, Wolfe, Dun, Tang, Kyrillidis, Jermaine: Distributed Learning of
// Deep Neural Networks using Independent Subnet Training, VLDB 2022.
//   payload      value                          key set  subnet(seed, round, site)   codec  any
//   consistency  round (a barrier)              rule     assign
// tail_steps > 0: the last ones are those of local_sgd (dense deltas; mean, add).
// Every J steps all hidden neurons are dealt anew, and each site trains the network of its own.
// All sites together, per step, up and down: (N_0 N_1 + N_{t-1} N_t) / J + sum of hidden-to-hidden
// matrices / (K J) floats, where data parallel moves K times all of them.
#include "absl/strings/str_cat.h"
#include "common/consistency/barrier.h"
#include "common/method/methods.h"
#include "common/rule/add.h"

namespace tessera {
namespace {

// What `ist` and `ensemble` have in common.
Recipe Subnets() {
  Recipe recipe;
  recipe.payload = PayloadKind::kValue;
  recipe.lockstep = true;
  recipe.subnets = true;
  // A round closes with a push of everybody. Values are assigned as they come.
  recipe.make_policy = MakeBarrier;
  recipe.make_rule = MakeAdd;
  return recipe;
}

// The steps of a round that is the whole job: more than any job has.
constexpr int64_t kWholeJob = 1000000000000;

}  // namespace

Recipe Ist(const v1::Job& job) {
  Recipe recipe = Subnets();
  recipe.name = "ist";
  recipe.local_steps = job.method().ist().local_steps();
  recipe.description =
      absl::StrCat("independent subnets: in rounds of ", recipe.local_steps,
                   " steps every hidden neuron belongs to one worker, which trains the network of "
                   "its neurons alone; a round ends when all workers have returned theirs");
  recipe.parts_by_speed = job.method().ist().parts() == "by_speed";
  if (recipe.parts_by_speed) {
    absl::StrAppend(&recipe.description,
                    "; slower workers have fewer neurons, so that all take equally long");
  }
  recipe.tail_steps = job.method().ist().tail_steps();
  if (recipe.tail_steps > 0) {
    absl::StrAppend(&recipe.description, "; the last ", recipe.tail_steps,
                    " steps train the whole model, whose changes the servers average");
  }
  return recipe;
}

// The model is cut once for the whole job, and returned once at the end.
Recipe Ensemble(const v1::Job& job) {
  Recipe recipe = Subnets();
  recipe.name = "ensemble";
  recipe.local_steps = kWholeJob;
  recipe.closed_to_joiners = true;
  recipe.exchanges_once = true;
  recipe.description =
      "an ensemble of subnets: every hidden neuron belongs to one worker for the whole job, and "
      "all return theirs at its end";
  return recipe;
}

}  // namespace tessera
