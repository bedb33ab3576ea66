// Independent subnet training.  Yuan, Wolfe, Dun, Tang, Kyrillidis, Jermaine: Distributed Learning of
// Deep Neural Networks using Independent Subnet Training, VLDB 2022.
//   payload      value                          key set  subnet(seed, round, site)   codec  any
//   consistency  round (a barrier)              rule     assign
// tail_steps > 0: the last ones are those of local_sgd (dense deltas; mean, add).
// Every J steps all hidden neurons are dealt anew, and each site trains the network of its own.
// All sites together, per step, up and down: (N_0 N_1 + N_{t-1} N_t) / J + sum of hidden-to-hidden
// matrices / (K J) floats, where data parallel moves K times all of them.
#include <algorithm>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/consistency/barrier.h"
#include "common/keyset/mean_share.h"
#include "common/keyset/subnet.h"
#include "common/layout/parameters.h"
#include "common/method/catalog.h"
#include "common/method/shared_parts.h"
#include "common/rule/add.h"

namespace tessera {
namespace {

SubnetRules RulesOf(const std::string& cut, bool rolling) { return {cut == "all", rolling}; }

SubnetRules RulesOf(const v1::Job& job) {
  if (job.method().has_ensemble()) return RulesOf(job.method().ensemble().cut(), false);
  const v1::Ist& ist = job.method().ist();
  return RulesOf(ist.cut(), ist.order() == "rolling");
}

// What `ist` and `ensemble` have in common.
Recipe Subnets(const v1::Job& job) {
  Recipe recipe;
  recipe.subnet_rules = RulesOf(job);
  recipe.payload = PayloadKind::kValue;
  recipe.lockstep = true;
  recipe.subnets = true;
  // A round closes with a push of everybody. Values are assigned as they come.
  recipe.make_policy = MakeBarrier;
  recipe.make_rule = MakeAdd;
  return recipe;
}

constexpr char kTailSteps[] = "method.ist.tail_steps";

// More steps than any job has.
constexpr int64_t kWholeJob = 1000000000000;

absl::StatusOr<Recipe> IstRecipe(const v1::Job& job) {
  Recipe recipe = Subnets(job);
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

// One partition for the whole run, returned once at the end.
absl::StatusOr<Recipe> EnsembleRecipe(const v1::Job& job) {
  Recipe recipe = Subnets(job);
  recipe.name = "ensemble";
  recipe.local_steps = kWholeJob;
  recipe.closed_to_joiners = true;
  recipe.exchanges_once = true;
  recipe.description =
      "an ensemble of subnets: every hidden neuron belongs to one worker for the whole job, and "
      "all return theirs at its end";
  return recipe;
}

// Hidden units are dealt to the workers, so that each hidden layer, or group of a job of tensors, that is cut must have
// one for every worker.
void CheckHiddenLayers(const v1::Job& job, absl::string_view method, KeyErrors* errors) {
  if (!errors->Sound("model") || !errors->Sound("cluster.workers")) return;
  const int64_t workers = std::max<int64_t>(1, job.cluster().workers());
  const absl::StatusOr<ModelShape> shape = ShapeOf(job.model());
  if (!shape.ok()) return;
  const SubnetRules rules = RulesOf(job);
  const NeuronGroups groups = GroupsOf(*shape, rules);
  const bool of_tensors = shape->layers.empty();
  if (of_tensors && groups.outputs == 1) {
    errors->Add("model.groups",
                absl::StrCat("missing, want at least one group of dimensions beside model.tensors, "
                             "{hidden: [[tensor, dimension], ...]}: ",
                             method, " deals its units to the workers (docs/own_models.md)"));
    return;
  }
  if (groups.outputs == 1) {
    const std::string what = rules.channels ? "layers with weights" : "linear layers";
    errors->Add("model.layers",
                absl::StrCat("got no hidden units to deal out, want at least two ", what,
                             " with nothing between them but layers of single units, as relu and "
                             "batch_norm are: ",
                             method, " deals the units between them to the workers",
                             rules.channels ? "" : "; with cut: all channels, too"));
    return;
  }
  // A unit that is cut must leave every worker at least one: groups 1 .. outputs - 1 are those that are cut.
  const int64_t least =
      *std::min_element(groups.widths.begin() + 1, groups.widths.begin() + groups.outputs);
  if (least >= workers) return;
  errors->Add("cluster.workers",
              absl::StrCat("got ", workers, ", want at most ", least,
                           of_tensors ? ", the units of the smallest group of model.groups"
                                      : ", the units of the smallest hidden layer that is cut",
                           ", so that every worker has a part of each"));
}

// The last minibatches are those of the whole model.
void CheckTail(const v1::Job& job, KeyErrors* errors) {
  const v1::Ist& ist = job.method().ist();
  if (ist.tail_steps() == 0) return;
  for (const absl::string_view key : {"method.ist", "model", "train"}) {
    if (!errors->Sound(key)) return;
  }
  const std::string got = absl::StrCat("got ", ist.tail_steps(), ", want ");
  // The tail begins where a round ends, so it cannot be shorter than a round.
  if (ist.tail_steps() < ist.local_steps()) {
    errors->Add(kTailSteps, absl::StrCat(got, "at least ", ist.local_steps(),
                                         ", which is method.ist.local_steps, or 0: it begins where "
                                         "a round ends"));
    return;
  }
  if (job.train().steps() > 0 && ist.tail_steps() >= job.train().steps()) {
    errors->Add(kTailSteps, absl::StrCat(got, "less than ", job.train().steps(),
                                         ", which is train.steps; for local steps alone use "
                                         "local_sgd"));
    return;
  }
  const absl::StatusOr<ModelShape> shape = ShapeOf(job.model());
  if (!shape.ok()) return;
  const std::vector<int> scaled = WeightsOfMeanShare(*shape, GroupsOf(*shape, RulesOf(job)));
  // Such weights have one scale in subnets and another in the whole model, and no single model fits both phases.
  if (scaled.empty()) return;
  errors->Add(kTailSteps,
              absl::StrCat(got, "0 with this model: ", shape->parameters[scaled.front()].name,
                           " sums over hidden neurons without a batch_norm behind it. Subnets are "
                           "trained on sums of fewer terms, which evaluation makes up for, and the "
                           "whole model is not; add a batch_norm after that layer"));
}

// Without a norm a unit's sums have fewer terms in a subnet than in the whole network, and nothing takes that up.
std::vector<std::string> SubnetNotes(const v1::Job& job) {
  const absl::StatusOr<ModelShape> shape = ShapeOf(job.model());
  if (!shape.ok()) return {};
  std::vector<std::string> names;
  for (const int layer : CutWithoutNorm(*shape, GroupsOf(*shape, RulesOf(job)))) {
    names.push_back(shape->layers[static_cast<size_t>(layer)].name);
  }
  if (names.empty()) return {};
  const bool is_one = names.size() == 1;
  return {absl::StrCat("model.layers: ", absl::StrJoin(names, ", "), is_one ? " makes" : " make",
                       " units that are dealt to workers, and no batch_norm is behind ",
                       is_one ? "it" : "them",
                       "; where a model has no norms at all its subnets hardly learn "
                       "(docs/methods.md#what-subnets-cut)")};
}

std::vector<LengthNote> IstLengthNotes(const v1::Job& job, int64_t steps) {
  const int64_t tail = job.method().ist().tail_steps();
  if (tail == 0 || tail < steps) return {};
  return {{kTailSteps, tail, "", "no subnet is trained; for local steps alone use local_sgd"}};
}

}  // namespace

extern const Method kIst = [] {
  Method method = {v1::Method::kIst, IstRecipe};
  method.check = [](const v1::Job& job, KeyErrors* errors) {
    CheckHiddenLayers(job, "ist", errors);
    RefuseBySpeed(job, "with method ist: its parts of the model go by speed (method.ist.parts)",
                  errors);
    CheckTail(job, errors);
  };
  method.length_notes = IstLengthNotes;
  method.counts_steps = [](const v1::Job& job) { return job.method().ist().tail_steps() > 0; };
  method.notes = SubnetNotes;
  return method;
}();

extern const Method kEnsemble = [] {
  Method method = {v1::Method::kEnsemble, EnsembleRecipe};
  method.check = [](const v1::Job& job, KeyErrors* errors) {
    CheckHiddenLayers(job, "ensemble", errors);
    RefuseBySpeed(job, "with method ensemble: nobody waits for others before the end", errors);
  };
  method.notes = SubnetNotes;
  return method;
}();

}  // namespace tessera
