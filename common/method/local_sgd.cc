// Local SGD, or parameter averaging: every J local steps the replicas are averaged.
//   payload      delta of J local steps         key set  dense      codec  any
//   consistency  barrier                        rule     mean, add
// w <- w + (1/K) sum_k delta_k.  Per worker and J steps: up 4n bytes, down 4n, one round trip; with
// average_state as many again for each state of the optimizer.
//
// fragments         as diloco.cc
// overlap           CoCoD-SGD (Shen, Xu, Liu, Liang, Cheng: IJCAI 2019, arXiv 1906.12043)
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/codec/codecs.h"
#include "common/consistency/barrier.h"
#include "common/method/catalog.h"
#include "common/method/shared_parts.h"
#include "common/rule/add.h"
#include "common/rule/optimizer.h"

namespace tessera {
namespace {

absl::StatusOr<Recipe> LocalSgdRecipe(const v1::Job& job) {
  const v1::LocalSgd& keys = job.method().local_sgd();
  Recipe recipe;
  recipe.name = "local_sgd";
  recipe.local_steps = keys.local_steps();
  recipe.description =
      absl::StrCat("synchronous every ", recipe.local_steps,
                   " steps: workers train on their own in between, and the servers add the "
                   "mean of their changes");
  if (keys.average_state()) {
    recipe.averaged_states = StateNames(job.train().optimizer());
    absl::StrAppend(&recipe.description, "; the optimizers' state (",
                    absl::StrJoin(recipe.averaged_states, ", "), ") is averaged as well");
  }
  if (keys.overlap()) Overlap(&recipe);
  TakeFragments(keys, &recipe);
  recipe.payload = PayloadKind::kDelta;
  recipe.lockstep = true;
  recipe.make_policy = BarrierOf(job);
  recipe.make_rule = MakeAdd;
  return recipe;
}

// Refuses codecs that ruin averaged states: Adam divides by the root of its squares, and one that is rounded to 0
// beside a mean that is not makes a step of mean / epsilon. RMSprop's next step would be up to 1 / sqrt(1 - alpha)
// times too long. In bf16 every square keeps its size.
void CheckStateCodec(const v1::Job& job, const std::string& key, const v1::Codec& codec,
                     KeyErrors* errors) {
  const v1::Optimizer& optimizer = job.train().optimizer();
  const absl::string_view name = optimizer.has_adamw()     ? "adamw"
                                 : optimizer.has_adam()    ? "adam"
                                 : optimizer.has_rmsprop() ? "rmsprop"
                                 : optimizer.has_muon()    ? "muon"
                                                           : "";
  if (name.empty()) return;
  const Codec named = CodecOf(codec);
  // bf16 keeps the exponent: a small square stays small instead of becoming 0.
  if (named->traits().keeps_small) return;
  const std::string others =
      KindsThat([](const CodecDefinition& other) { return other.traits().keeps_small; });
  errors->Add(key, absl::StrCat("got ", named->name(), ", want ", others, " with ", name,
                                " and method.local_sgd.average_state: it makes small squares of "
                                "gradients 0, and a step divides by their root; with average_state "
                                "false it is welcome"));
}

void CheckLocalSgd(const v1::Job& job, KeyErrors* errors) {
  const v1::LocalSgd& keys = job.method().local_sgd();
  FragmentWish wish{"method.local_sgd", keys.local_steps(), keys.fragments(),
                    keys.delay(),       keys.alpha(),       /*excluding=*/""};
  if (keys.average_state()) wish.excluding = "average_state";
  if (keys.overlap()) wish.excluding = "overlap (delay says how many steps an exchange overlaps)";
  CheckFragments(job, wish, errors);
  if (!keys.average_state()) return;
  if (keys.overlap()) {
    errors->Add("method.local_sgd.overlap",
                "got true beside average_state, want one or the other: a state that comes an "
                "exchange late does not belong to the parameters that it would move");
  }
  const std::string average = "method.local_sgd.average_state";
  if (errors->Sound(average) && errors->Sound("train.optimizer") &&
      StateNames(job.train().optimizer()).empty()) {
    errors->Add(average,
                "got true, want false: sgd without momentum has no state, so that there is nothing "
                "to average");
  }
  if (errors->Sound("codec") && errors->Sound("method") && errors->Sound("train.optimizer")) {
    CheckStateCodec(job, "codec.push", job.codec().push(), errors);
    CheckStateCodec(job, "codec.pull", job.codec().pull(), errors);
  }
}

}  // namespace

extern const Method kLocalSgd = {v1::Method::kLocalSgd, LocalSgdRecipe, CheckLocalSgd};

}  // namespace tessera
