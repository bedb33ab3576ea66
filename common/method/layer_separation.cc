// Layer separation (Stanza: Wu, Xu, Li, Xiong 2018, arXiv 1812.10624).
//   payload      gradient of one minibatch      key set  dense, of one half of the layers     codec  any
//   consistency  barrier                        rule     the job's optimizer, fed the mean gradient
//
// The model is cut before its first linear layer, or before the one that `cut` names. Workers of the first ranks have
// the data and the half in front;
// each sends the activations at the cut, with the labels, to one of the last ranks, which has the half behind and
// returns their gradient (worker/activations). Both push the gradients of their own half: what the servers apply
// is the mean over the minibatches, as in data_parallel with as many workers as have data, step for step.
// Per worker with data and step: 4 n_front bytes up and down, and 4 B A both ways for B activations of A values;
// per other worker 4 n_behind.
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"
#include "common/consistency/barrier.h"
#include "common/layout/layer_cut.h"
#include "common/method/catalog.h"
#include "common/method/shared_parts.h"

namespace tessera {
namespace {

absl::StatusOr<Recipe> LayerSeparationRecipe(const v1::Job& job) {
  Recipe recipe;
  recipe.name = "layer_separation";
  recipe.description =
      "synchronous: some workers train the convolutions, the others the linear layers behind them "
      "on the activations that they are sent, and the servers apply the mean gradients of each";
  recipe.local_steps = 1;
  recipe.lockstep = true;
  TESSERA_ASSIGN_OR_RETURN(const LayerCut cut,
                           CutBeforeLinear(job.model(), job.method().layer_separation().cut()));
  const auto linear = static_cast<int>(job.method().layer_separation().linear_workers());
  recipe.split = LayerSplit{cut, static_cast<int>(job.cluster().workers()) - linear, linear,
                            static_cast<int>(job.method().layer_separation().linear_servers())};
  // One minibatch of each worker with data is one push on either side of the cut.
  recipe.make_policy = MakeBarrier;
  ApplyOptimizer(job, &recipe);
  return recipe;
}

void CheckLayerSeparation(const v1::Job& job, KeyErrors* errors) {
  const std::string key = "method.layer_separation.linear_workers";
  const int64_t workers = job.cluster().workers();
  const int64_t linear = job.method().layer_separation().linear_workers();
  // Each worker with data sends to one linear worker, so that a linear worker without a sender would idle.
  if (errors->Sound(key) && errors->Sound("cluster.workers") && 2 * linear > workers) {
    errors->Add(key, absl::StrCat("got ", linear, ", want at most ", workers / 2, " of the ",
                                  workers, " workers (cluster.workers)",
                                  workers < 2 ? ", which must be 2 or more" : "",
                                  ": each of the others sends its activations to one of them"));
  }
  const auto servers = static_cast<int64_t>(job.cluster().servers().count());
  const int64_t linear_servers = job.method().layer_separation().linear_servers();
  const std::string servers_key = "method.layer_separation.linear_servers";
  if (errors->Sound(servers_key) && errors->Sound("cluster.servers") && linear_servers >= servers &&
      linear_servers > 0) {
    errors->Add(
        servers_key,
        absl::StrCat("got ", linear_servers, ", want at most ", servers - 1, " of the ", servers,
                     " servers (cluster.servers): the layers in front of the cut need one, too"));
  }
  const int64_t piece = job.train().micro_batch();
  if (errors->Sound("train") && piece > 0 && piece < job.train().batch_size()) {
    errors->Add("train.micro_batch",
                absl::StrCat("got ", piece,
                             ", want 0 with method layer_separation: the activations of a "
                             "minibatch are sent whole"));
  }
  if (errors->Sound("train") && job.train().clip_norm() != 0) {
    errors->Add("train.clip_norm",
                absl::StrCat("got ", job.train().clip_norm(),
                             ", want 0 with method layer_separation: no worker has the gradient of "
                             "all parameters"));
  }
  const absl::StatusOr<LayerCut> cut =
      CutBeforeLinear(job.model(), job.method().layer_separation().cut());
  if (!errors->Sound("model") || cut.ok()) return;
  absl::string_view message = cut.status().message();
  if (absl::ConsumePrefix(&message, "cut: ")) {
    errors->Add("method.layer_separation.cut", message);
  } else {
    errors->Add("model.layers", absl::StrCat(absl::StripPrefix(message, "model.layers: "),
                                             " with method layer_separation"));
  }
}

}  // namespace

extern const Method kLayerSeparation = [] {
  Method method = {v1::Method::kLayerSeparation, LayerSeparationRecipe, CheckLayerSeparation};
  method.why_layers = "it cuts the model between two layers, and a job of tensors has none";
  return method;
}();

}  // namespace tessera
