// DiLoCo: local SGD with an outer optimizer.  Douillard et al., arXiv 2311.08105.
//   payload      delta of H local steps         key set  dense      codec  any
//   consistency  barrier, weighted by examples  rule     outer Nesterov on D = -mean
// m <- mu m + D, w <- w - eta (D + mu m).  Per worker and H steps: up 4n bytes, down 4n.
//
// quorum.pushes     k of K close an update after a grace, fixed or learned; the others' pushes join the next
//                   (arXiv 2604.21428)
// asynchronous      every push is an update, rule delayed Nesterov, and slower workers are given
//                   fewer steps (Liu et al., arXiv 2401.09135)
// fragments         the model in P pieces, one exchanged every H / P steps, taken up `delay` steps later as
//                   alpha w_local + (1 - alpha) w (Douillard et al., Streaming DiLoCo, arXiv 2501.18512)
// overlap           an exchange goes on beside the next steps (as local_sgd.cc)
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/codec/codecs.h"
#include "common/codec/selective_codec.h"
#include "common/consistency/barrier.h"
#include "common/consistency/none.h"
#include "common/consistency/quorum.h"
#include "common/method/catalog.h"
#include "common/method/shared_parts.h"
#include "common/rule/delayed_nesterov.h"
#include "common/rule/negated.h"
#include "common/rule/sgd.h"

namespace tessera {
namespace {

// The value of quorum.weights.
constexpr absl::string_view kSquaredExamples = "squared_examples";

// Chooses lockstep: everybody waits for the changes of all.
void WaitForAll(Recipe* recipe) {
  absl::StrAppend(
      &recipe->description, "; every ", recipe->local_steps,
      " steps they wait for the changes of all, and an outer optimizer applies the mean");
  recipe->lockstep = true;
  recipe->make_policy = MakeWeightedBarrier;
}

// How long a round stays open for the others, in words.
std::string GraceWords(const QuorumOptions& options) {
  if (!options.adaptive_grace) {
    return absl::StrCat(absl::FormatDuration(options.grace), " longer for the others");
  }
  const std::string most = options.grace > absl::ZeroDuration()
                               ? absl::StrCat(", at most ", absl::FormatDuration(options.grace))
                               : "";
  return absl::StrCat("longer for others that are about as fast, but not for slow ones", most);
}

// Chooses a quorum: an update closes with so many changes, and the grace for the others.
void WaitForQuorum(const v1::Diloco& keys, Recipe* recipe) {
  QuorumOptions options;
  options.pushes = keys.quorum().pushes();
  options.grace = absl::Nanoseconds(keys.quorum().grace());
  options.adaptive_grace = keys.quorum().adaptive_grace();
  options.beside = keys.overlap();
  options.squared_examples = keys.quorum().weights() == kSquaredExamples;
  absl::StrAppend(&recipe->description, "; every ", recipe->local_steps, " steps they wait until ",
                  options.pushes, " workers have sent their changes, and ", GraceWords(options),
                  "; an outer optimizer applies the mean",
                  options.squared_examples ? " by squared weights" : "",
                  ", and who comes later joins the next round without waiting");
  recipe->lockstep = false;
  recipe->aligned = false;
  recipe->make_policy = [options] { return MakeQuorum(options); };
}

absl::StatusOr<Recipe> DilocoRecipe(const v1::Job& job) {
  const v1::Diloco& keys = job.method().diloco();
  const float eta = static_cast<float>(keys.outer_learning_rate());
  const float mu = static_cast<float>(keys.outer_momentum());
  const int64_t workers = std::max<int64_t>(1, job.cluster().workers());
  Recipe recipe;
  recipe.name = "diloco";
  recipe.local_steps = keys.local_steps();
  recipe.payload = PayloadKind::kDelta;
  recipe.description = "DiLoCo: workers train on their own";
  if (keys.asynchronous()) {
    absl::StrAppend(&recipe.description, ", up to ", recipe.local_steps,
                    " steps, slower ones fewer; each change is applied when it arrives, momentum "
                    "at every ",
                    workers, workers == 1 ? " change" : " changes", "; nobody waits for anybody");
    recipe.lockstep = false;
    recipe.aligned = false;
    recipe.step_budgets = true;
    // Each change weighs 1 / cluster.workers, however many steps it is of.
    recipe.push_weight = PushWeight::kOfRanks;
    recipe.make_policy = [] { return MakeNone(StalenessWeight()); };
    recipe.make_rule = [eta, mu, workers] {
      return MakeNegated(MakeDelayedNesterov({eta, mu, /*ahead=*/0, workers}));
    };
    if (mu != 0) recipe.rule_states = {"outer_momentum", "buffer"};
    return recipe;
  }
  if (keys.quorum().pushes() > 0) {
    WaitForQuorum(keys, &recipe);
  } else {
    WaitForAll(&recipe);
  }
  if (keys.overlap()) Overlap(&recipe);
  TakeFragments(keys, &recipe);
  recipe.make_rule = [eta, mu] {
    // Reddi et al. (FedOpt): the mean delta is the outer optimizer's negative gradient.
    SgdOptions outer;
    outer.learning_rate = eta;
    outer.momentum = mu;
    outer.nesterov = true;
    return MakeNegated(MakeSgd(outer));
  };
  if (mu != 0) recipe.rule_states = {"outer_momentum"};
  return recipe;
}

void CheckQuorum(const v1::Job& job, KeyErrors* errors) {
  const v1::Diloco& keys = job.method().diloco();
  const std::string key = "method.diloco.quorum";
  if (!errors->Sound(key) || !errors->Sound("method.diloco.asynchronous")) return;
  const v1::Quorum& quorum = keys.quorum();
  if (keys.asynchronous() && (quorum.pushes() > 0 || quorum.grace() > 0)) {
    errors->Add(key,
                "got a quorum beside asynchronous, want one or the other: with asynchronous nobody "
                "waits, so that there is nothing to close");
  } else if (quorum.pushes() == 0 && quorum.grace() > 0) {
    errors->Add(key + ".grace",
                "got a time without pushes, want both: grace runs once so many pushes are there, "
                "and with pushes 0 an update waits for all");
  } else if (quorum.pushes() == 0 && quorum.adaptive_grace()) {
    errors->Add(key + ".adaptive_grace",
                "got true without pushes, want both: a grace is for those who are not among the "
                "first so many, and with pushes 0 an update waits for all");
  } else if (quorum.pushes() == 0 && quorum.weights() == kSquaredExamples) {
    errors->Add(key + ".weights",
                absl::StrCat("got ", kSquaredExamples,
                             " without pushes, want both, or examples: without a quorum "
                             "pushes weigh by their examples"));
  } else {
    CheckPushes(job, key + ".pushes", quorum.pushes(), errors);
  }
}

void CheckDiloco(const v1::Job& job, KeyErrors* errors) {
  CheckQuorum(job, errors);
  const v1::Diloco& keys = job.method().diloco();
  if (keys.asynchronous()) {
    RefuseBySpeed(job,
                  "with method.diloco.asynchronous: slower workers make fewer local steps there",
                  errors);
  }
  FragmentWish wish{"method.diloco", keys.local_steps(), keys.fragments(),
                    keys.delay(),    keys.alpha(),       /*excluding=*/""};
  if (keys.quorum().pushes() > 0) wish.excluding = "a quorum";
  if (keys.asynchronous()) wish.excluding = "asynchronous";
  if (keys.overlap()) wish.excluding = "overlap (delay says how many steps an exchange overlaps)";
  CheckFragments(job, wish, errors);
  if (!keys.overlap() || !keys.asynchronous()) return;
  errors->Add("method.diloco.overlap",
              "got true beside asynchronous, want one or the other: nobody waits there, so that "
              "there is nothing to overlap");
}

// Without a grace workers of about the same speed are late by turns.
std::vector<std::string> QuorumNotes(const v1::Job& job) {
  const v1::Diloco& keys = job.method().diloco();
  const v1::Quorum& quorum = keys.quorum();
  const int64_t pushes = quorum.pushes();
  const bool has_grace = quorum.grace() > 0 || quorum.adaptive_grace();
  if (pushes == 0 || has_grace || pushes >= job.cluster().workers()) return {};
  return {absl::StrCat("method.diloco.quorum: got ", pushes, " of ", job.cluster().workers(),
                       " pushes and no grace; workers that are nearly as fast as the others are "
                       "late by turns then, and the model learns less than with asynchronous: "
                       "want adaptive_grace: true, or a grace longer than they usually differ by, "
                       "such as a tenth of the local steps' time "
                       "(docs/methods.md#with-a-quorum)")};
}

// A push of the largest entries brings what many steps have held back. Momentum multiplies that once more.
std::vector<std::string> MomentumNotes(const v1::Job& job) {
  const v1::Diloco& keys = job.method().diloco();
  const Codec push = CodecOf(job.codec().push());
  if (push->selective() == nullptr || push->selective()->largest_of_chunk() == 0) return {};
  if (keys.outer_momentum() == 0) return {};
  return {absl::StrCat("method.diloco.outer_momentum: got ", keys.outer_momentum(),
                       " beside codec.push ", push->kind(),
                       ", whose pushes bring what earlier ones held back, which is a momentum of "
                       "its own: want outer_momentum 0 and outer_learning_rate 1")};
}

// The number of exchanges through which an outer momentum carries what one of them brought, by its weight.
double CarriedExchanges(const v1::Diloco& keys) { return 1 / (1 - keys.outer_momentum()); }

// Whether a momentum is one that a short job ends before it has settled. The delayed rule spreads it otherwise.
bool WantsManyExchanges(const v1::Job& job) {
  const v1::Diloco& keys = job.method().diloco();
  return !keys.asynchronous() && CarriedExchanges(keys) > 2;
}

// Notes that there are fewer than ten times as many exchanges as the momentum carries each through.
std::vector<LengthNote> DilocoLengthNotes(const v1::Job& job, int64_t steps) {
  const v1::Diloco& keys = job.method().diloco();
  const int64_t exchanges = (steps - 1) / keys.local_steps() + 1;
  const int64_t wanted = std::llround(10 * CarriedExchanges(keys));
  if (!WantsManyExchanges(job) || exchanges < 2 || exchanges >= wanted) {
    return {};
  }
  return {
      {"method.diloco.local_steps", keys.local_steps(),
       absl::StrCat("the job has ", exchanges, " exchanges"),
       absl::StrCat("an outer_momentum of ", keys.outer_momentum(), " wants ", wanted,
                    " or more to settle; with so few outer_momentum 0.5 and "
                    "outer_learning_rate 1 end at a lower loss (docs/methods.md#few-exchanges)")}};
}

std::vector<std::string> DilocoNotes(const v1::Job& job) {
  std::vector<std::string> notes = QuorumNotes(job);
  for (std::string& note : MomentumNotes(job)) notes.push_back(std::move(note));
  return notes;
}

}  // namespace

extern const Method kDiloco = {v1::Method::kDiloco, DilocoRecipe,       CheckDiloco,
                               DilocoLengthNotes,   WantsManyExchanges, DilocoNotes};

}  // namespace tessera
