// Decentralised training: no central server, a replica beside every worker.  Strom: Scalable Distributed
// DNN Training Using Commodity GPU Cloud Computing, Interspeech 2015.
//   payload      delta of J local steps         key set  dense      codec  threshold(density)
//   consistency  none                           rule     add
//   placement    replicated: pushes go to every server, pulls stay beside the worker
// w <- w + delta_k on every replica, in the order of arrival.  Per worker and J steps: up (K - 1) times
// a push, to the peers; nothing comes down.  Replicas are equal, but for rounding, once all pushes have
// arrived.
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/codec/codecs.h"
#include "common/codec/selective_codec.h"
#include "common/codec/threshold.h"
#include "common/consistency/none.h"
#include "common/method/catalog.h"
#include "common/rule/add.h"

namespace tessera {
namespace {

absl::StatusOr<Recipe> DecentralizedRecipe(const v1::Job& job) {
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
  // Nobody waits and no exchange is aligned: a replica goes on with whatever has arrived.
  recipe.lockstep = false;
  recipe.push_weight = PushWeight::kWhole;
  recipe.aligned = false;
  recipe.make_policy = [] { return MakeNone(1.0f); };
  recipe.make_rule = MakeAdd;
  return recipe;
}

constexpr char kWarmupSteps[] = "method.decentralized.warmup_steps";

// Worker 0 trains alone at first, and the rest of the job follows.
void CheckWarmup(const v1::Job& job, KeyErrors* errors) {
  const int64_t warmup = job.method().decentralized().warmup_steps();
  if (!errors->Sound(kWarmupSteps) || !errors->Sound("train") || job.train().steps() == 0) return;
  if (warmup == 0 || warmup < job.train().steps()) return;
  errors->Add(kWarmupSteps, absl::StrCat("got ", warmup, ", want less than ", job.train().steps(),
                                         ", which is train.steps: the others would never begin"));
}

void CheckServers(const v1::Job& job, KeyErrors* errors) {
  if (!errors->Sound("cluster.servers") || !errors->Sound("cluster.workers")) return;
  const v1::Servers& list = job.cluster().servers();
  const bool is_listed = !list.addresses().empty();
  const int64_t servers = is_listed ? list.addresses_size() : list.count();
  const int64_t workers = job.cluster().workers();
  if (servers == workers) return;
  errors->Add(is_listed ? "cluster.servers.addresses" : "cluster.servers.count",
              absl::StrCat("got ", servers, ", want ", workers,
                           ", the number of workers (cluster.workers): with decentralized every "
                           "worker has a server of its own beside it"));
}

// Replicas that go on by themselves have no common state to keep.
void CheckCheckpoint(const v1::Job& job, KeyErrors* errors) {
  const v1::Checkpoint& checkpoint = job.checkpoint();
  for (const auto& [key, path] : {std::make_pair("checkpoint.directory", &checkpoint.directory()),
                                  std::make_pair("checkpoint.restore", &checkpoint.restore())}) {
    if (path->empty() || !errors->Sound(key) || !errors->Sound("method")) continue;
    errors->Add(key, absl::StrCat("got ", Quoted(*path),
                                  ", want none with decentralized: every replica is a copy of the "
                                  "model, and a new server copies one that is there"));
  }
}

void CheckReplicas(const v1::Job& job, KeyErrors* errors) {
  for (const absl::string_view key : {"cluster.replicas", "cluster.servers", "method"}) {
    if (!errors->Sound(key)) return;
  }
  if (job.cluster().replicas() == 0) return;
  errors->Add("cluster.replicas",
              "got 1, want 0 with method decentralized: every server has the whole model already");
}

void CheckDecentralized(const v1::Job& job, KeyErrors* errors) {
  CheckCheckpoint(job, errors);
  CheckWarmup(job, errors);
  CheckServers(job, errors);
  CheckReplicas(job, errors);
}

std::vector<LengthNote> DecentralizedLengthNotes(const v1::Job& job, int64_t steps) {
  const int64_t warmup = job.method().decentralized().warmup_steps();
  if (warmup == 0 || warmup < steps) return {};
  return {{kWarmupSteps, warmup, "", "it ends before workers other than 0 begin"}};
}

// codec.push, where it is given, says the density, too, and is the one that counts.
std::vector<std::string> IdleKeys(const v1::Job& job) {
  const v1::Codec& push = job.codec().push();
  const double density = job.method().decentralized().density();
  // A resolved job has a density of the method even where its file does not: the default of the codec's.
  const bool is_given = density != ThresholdNumbers().density;
  if (push.kind_case() == v1::Codec::KIND_NOT_SET || !is_given) return {};
  const Codec codec = CodecOf(push);
  if (codec->selective() != nullptr && codec->selective()->sent_share() == density) return {};
  return {absl::StrCat("method.decentralized.density ", density,
                       ": without effect beside codec.push ", codec->name())};
}

}  // namespace

extern const Method kDecentralized = {
    v1::Method::kDecentralized,
    DecentralizedRecipe,
    CheckDecentralized,
    DecentralizedLengthNotes,
    [](const v1::Job& job) { return job.method().decentralized().warmup_steps() > 0; },
    IdleKeys};

}  // namespace tessera
