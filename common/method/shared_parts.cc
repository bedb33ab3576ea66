#include "common/method/shared_parts.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/consistency/barrier.h"
#include "common/method/train_rows.h"
#include "common/rule/optimizer.h"

namespace tessera {
namespace {

// "every " so many.
std::string Steps(int64_t count) { return count == 1 ? "step" : absl::StrCat(count, " steps"); }

}  // namespace

Recipe MeanOfGradients(const v1::Job& job) {
  Recipe recipe;
  recipe.description =
      "synchronous: every step waits for the gradients of all workers, and the servers apply their "
      "mean";
  recipe.local_steps = 1;
  recipe.lockstep = true;
  recipe.make_policy = BarrierOf(job);
  ApplyOptimizer(job, &recipe);
  return recipe;
}

PolicyMaker BarrierOf(const v1::Job& job) {
  return DealsBySpeed(job) ? MakeWeightedBarrier : MakeBarrier;
}

void RefuseBySpeed(const v1::Job& job, absl::string_view why, KeyErrors* errors) {
  if (!DealsBySpeed(job) || !errors->Sound("data.partition")) return;
  errors->Add("data.partition", absl::StrCat("got \"by_speed\", want \"global\" ", why));
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

void MoveFragments(const FragmentTurns& turns, Recipe* recipe) {
  recipe->local_steps /= turns.count;
  recipe->fragments = turns;
  recipe->overlaps = turns.delay > 0;
  absl::StrAppend(&recipe->description, "; of ", turns.count,
                  " fragments of the model one is exchanged every ", Steps(recipe->local_steps));
  if (turns.delay > 0) {
    absl::StrAppend(&recipe->description, ", and taken up ", turns.delay,
                    turns.delay == 1 ? " step later" : " steps later");
  }
  if (turns.alpha > 0) {
    absl::StrAppend(&recipe->description, ", with a share of ", turns.alpha,
                    " of the worker's own values");
  }
}

void CheckFragments(const v1::Job& job, const FragmentWish& wish, KeyErrors* errors) {
  const std::string key = wish.method + ".fragments";
  const std::string delay = wish.method + ".delay";
  const std::string alpha = wish.method + ".alpha";
  for (const std::string& name : {key, delay, alpha, wish.method + ".local_steps"}) {
    if (!errors->Sound(name)) return;
  }
  if (wish.fragments == 1) {
    const char* const want =
        "without fragments, want fragments 2 or more: a whole model is taken up "
        "as it comes (overlap has it come beside the next steps)";
    if (wish.delay > 0) errors->Add(delay, absl::StrCat("got ", wish.delay, " ", want));
    if (wish.alpha > 0) errors->Add(alpha, absl::StrCat("got ", wish.alpha, " ", want));
    return;
  }
  if (!wish.excluding.empty()) {
    errors->Add(key, absl::StrCat("got ", wish.fragments, " beside ", wish.excluding,
                                  ", want one or the other"));
    return;
  }
  // Every fragment has the same number of steps between two of its exchanges.
  if (wish.local_steps % wish.fragments != 0) {
    const int64_t below = wish.local_steps / wish.fragments * wish.fragments;
    errors->Add(key,
                absl::StrCat("got ", wish.fragments, ", want a number that divides local_steps (",
                             wish.local_steps, ") such as with local_steps ",
                             below > 0 ? absl::StrCat(below, " or ") : "", below + wish.fragments,
                             ": exchanges of fragments have equal distances"));
    return;
  }
  if (const int64_t most = wish.local_steps / wish.fragments; wish.delay > most) {
    errors->Add(delay, absl::StrCat("got ", wish.delay, ", want at most ", most,
                                    ", local_steps / fragments: one exchange goes on at a time"));
  }
  if (job.codec().flush()) {
    errors->Add("codec.flush",
                "got true beside fragments, want one or the other: the last exchange moves one "
                "fragment, and could flush no other");
  }
}

void CheckPushes(const v1::Job& job, const std::string& key, int64_t pushes, KeyErrors* errors) {
  const int64_t workers = std::max<int64_t>(1, job.cluster().workers());
  if (!errors->Sound(key) || !errors->Sound("cluster.workers") || pushes <= workers) return;
  errors->Add(key, absl::StrCat("got ", pushes, ", want at most ", workers,
                                ", the number of workers (cluster.workers)"));
}

}  // namespace tessera
