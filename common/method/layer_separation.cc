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
#include <algorithm>
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

constexpr char kCutKey[] = "method.layer_separation.cut";
constexpr char kLinearWorkersKey[] = "method.layer_separation.linear_workers";
constexpr char kOpenCut[] = "auto";

// In front of the layer that the job names or, while that is yet to be chosen, the first one that has anything to train
// in front of it.
absl::StatusOr<LayerCut> CutOf(const v1::Job& job) {
  const std::string& name = job.method().layer_separation().cut();
  if (name != kOpenCut) return CutBeforeLinear(job.model(), name);
  absl::StatusOr<LayerCut> cut = CutBeforeLinear(job.model(), "");
  // Without convolutions any cut has to be named, and whichever is chosen will be.
  const absl::StatusOr<ModelShape> shape = ShapeOf(job.model());
  if (cut.ok() || !shape.ok()) return cut;
  for (const ModelLayer& layer : shape->layers) {
    absl::StatusOr<LayerCut> other = CutBeforeLinear(job.model(), layer.name);
    if (other.ok()) return other;
  }
  return cut;
}

// One, while the number is yet to be chosen.
int64_t LinearWorkersOf(const v1::LayerSeparation& keys) {
  return std::max<int64_t>(1, keys.linear_workers());
}

absl::StatusOr<Recipe> LayerSeparationRecipe(const v1::Job& job) {
  Recipe recipe;
  recipe.name = "layer_separation";
  recipe.description =
      "synchronous: some workers train the convolutions, the others the linear layers behind them "
      "on the activations that they are sent, and the servers apply the mean gradients of each";
  recipe.local_steps = 1;
  recipe.lockstep = true;
  const v1::LayerSeparation& keys = job.method().layer_separation();
  TESSERA_ASSIGN_OR_RETURN(const LayerCut cut, CutOf(job));
  const auto linear = static_cast<int>(LinearWorkersOf(keys));
  recipe.split = LayerSplit{cut, static_cast<int>(job.cluster().workers()) - linear, linear,
                            static_cast<int>(keys.linear_servers())};
  if (keys.cut() == kOpenCut) recipe.open_keys.push_back(kCutKey);
  if (keys.linear_workers() == 0) recipe.open_keys.push_back(kLinearWorkersKey);
  // One minibatch of each worker with data is one push on either side of the cut.
  recipe.make_policy = MakeBarrier;
  ApplyOptimizer(job, &recipe);
  return recipe;
}

void CheckLayerSeparation(const v1::Job& job, KeyErrors* errors) {
  RefuseBySpeed(job,
                "with method layer_separation: a linear worker expects equal minibatches of all",
                errors);
  const std::string key = kLinearWorkersKey;
  const int64_t workers = job.cluster().workers();
  const int64_t linear = LinearWorkersOf(job.method().layer_separation());
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
  const absl::StatusOr<LayerCut> cut = CutOf(job);
  if (!errors->Sound("model") || cut.ok()) return;
  absl::string_view message = cut.status().message();
  if (absl::ConsumePrefix(&message, "cut: ")) {
    errors->Add(kCutKey, message);
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
