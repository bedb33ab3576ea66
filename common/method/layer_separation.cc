// Layer separation (Stanza: Wu, Xu, Li, Xiong 2018, arXiv 1812.10624).
//   payload      gradient of one minibatch      key set  dense, of one half of the layers     codec  any
//   consistency  barrier                        rule     the job's optimizer, fed the mean gradient
//
// The model is cut before its first linear layer. Workers of the first ranks have the data and the half in front;
// each sends the activations at the cut, with the labels, to one of the last ranks, which has the half behind and
// returns their gradient (worker/activations). Both push the gradients of their own half: what the servers apply
// is the mean over the minibatches, as in data_parallel with as many workers as have data, step for step.
// Per worker with data and step: 4 n_front bytes up and down, and 4 B A both ways for B activations of A values;
// per other worker 4 n_behind.
#include "common/method/methods.h"

#include "common/base/check.h"
#include "common/consistency/barrier.h"

namespace tessera {

Recipe LayerSeparation(const v1::Job& job) {
  Recipe recipe;
  recipe.name = "layer_separation";
  recipe.description =
      "synchronous: some workers train the convolutions, the others the linear layers behind them "
      "on the activations that they are sent, and the servers apply the mean gradients of each";
  recipe.local_steps = 1;
  recipe.lockstep = true;
  const absl::StatusOr<LayerCut> cut = CutBeforeLinear(job.model());
  TESSERA_CHECK(cut.ok());  // RecipeFor has looked.
  const auto linear = static_cast<int>(job.method().layer_separation().linear_workers());
  recipe.split = LayerSplit{*cut, static_cast<int>(job.cluster().workers()) - linear, linear};
  recipe.make_policy = MakeBarrier;
  ApplyOptimizer(job, &recipe);
  return recipe;
}

}  // namespace tessera
