// A training method is a recipe: one choice from each of a few small sets (docs/methods.md).
//
// Everything else in the program sees key sets, payloads and verdicts, and never a method's name.
#ifndef TESSERA_COMMON_METHOD_RECIPE_H_
#define TESSERA_COMMON_METHOD_RECIPE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "common/codec/codec.h"
#include "common/consistency/policy.h"
#include "common/keyset/core_share.h"
#include "common/keyset/subnet.h"
#include "common/layout/layer_cut.h"
#include "common/layout/parameters.h"
#include "common/layout/shard_map.h"
#include "common/rule/rule.h"
#include "common/rule/schedule.h"
#include "proto/job.pb.h"

namespace tessera {

// What a push holds. The numbers are those of v1::PayloadKind.
enum class PayloadKind {
  kGradient = 0,  // of one minibatch; the shard applies the job's optimizer
  kDelta = 1,  // replica after minus before the last local steps; the worker applied the optimizer
  kValue = 2,  // replaces the entries
};

// Which half of the layers a worker has. The workers of the first ranks have the data.
struct LayerSplit {
  LayerCut cut;
  int front_workers = 0;
  int linear_workers = 0;
  // The last so many servers have the parameters behind the cut, and nothing else; 0: every server has a share of all.
  int linear_servers = 0;

  bool is_linear(Rank rank) const { return rank.value() >= static_cast<uint64_t>(front_workers); }
  ParameterRange range(Rank rank) const { return is_linear(rank) ? cut.back() : cut.front(); }
};

// Exchanges move the model's fragments in turn (common/layout/fragment.h).
struct FragmentTurns {
  int count = 1;
  // Minibatches that are computed beside an exchange before what it brings is taken up; 0: it is waited for.
  int64_t delay = 0;
  // A worker takes up alpha of its own value, and 1 - alpha of what came.
  float alpha = 0;
};

// What becomes of a push.
enum class PushWeight {
  kOfMean,   // it is one of a mean over those that push
  kOfRanks,  // it weighs 1/cluster.workers, whoever comes and goes
  kOfSome,   // it is one of a mean over Recipe::pushes, or as many as there are members
  kWhole,    // it is added as it is
};

// It has more fields than other classes: one for each choice, so that no one else asks which method it is.
struct Recipe {
  // The method's name in the job file, and its words for status and report.
  std::string name;
  std::string description;
  // Minibatches between exchanges.
  int64_t local_steps = 1;
  PayloadKind payload = PayloadKind::kGradient;
  // Where parameters are. Replicated: rank k has server k beside it and pulls from that one alone; pushes go to
  // all.
  Placement placement = Placement::kSharded;
  // Whether all members make the same exchange together.
  bool lockstep = true;
  PushWeight push_weight = PushWeight::kOfMean;
  int64_t pushes = 1;  // in a mean; where push_weight is kOfSome
  // Whether an exchange goes on while the next minibatches are computed, and what it brings is taken up under what
  // they have changed, when the next one is due. Only where members are in lockstep, and deltas of all parameters
  // alone are exchanged.
  bool overlaps = false;
  // If set, local_steps are those between the exchanges of two fragments, and entries that an exchange does not move
  // are each worker's own. Only where members are in lockstep, and deltas of the parameters are exchanged.
  std::optional<FragmentTurns> fragments;
  // Whether a member's exchange tells its step: one that joins then begins where its first exchange does.
  bool aligned = true;
  // Every exchange is a round in which each member trains a subnet of its own
  // (common/keyset/subnet.h).
  bool subnets = false;
  // Which units subnets cut, and in which order.
  SubnetRules subnet_rules;
  // Whether slower members get smaller subnets.
  bool parts_by_speed = false;
  // With subnets: how many of the last minibatches, at most, are those of another method, TailOf.
  int64_t tail_steps = 0;
  // Whether nobody can join once the job has begun.
  bool closed_to_joiners = false;
  // Whether one round is the whole job.
  bool exchanges_once = false;
  // Minibatches that rank 0 trains before the others join.
  int64_t warmup_steps = 0;
  // Whether the coordinator gives slower workers fewer local steps.
  bool step_budgets = false;
  // States of the workers' optimizers that are exchanged and averaged beside the parameters.
  std::vector<std::string> averaged_states;
  // If set, exchanges move a core and an explorer (common/keyset/sparse_keys.h).
  std::optional<CoreShare> core;
  // If set, a member exchanges the parameters of its half of the layers, and the halves meet in activations.
  std::optional<LayerSplit> split;
  // Keys of the job that say `auto`, whose values whoever starts the job has to choose (JobOptions::may_be_open). The
  // recipe is that of their defaults meanwhile.
  std::vector<std::string> open_keys;
  // How values are written on the wire.
  CodecChoice codecs;
  // The schedule of the rate of make_rule's rule. Where workers take steps of their own it is the schedule of
  // theirs instead.
  RateSchedule schedule;
  // Makes the policy or the rule of one shard.
  std::function<std::unique_ptr<ConsistencyPolicy>()> make_policy;
  std::function<std::unique_ptr<UpdateRule>()> make_rule;
  // The states that make_rule's rule keeps, in their order, by what they mean.
  std::vector<std::string> rule_states;
};

// The recipe that `job` names; the job reader has refused before what is an error here.
//   kUnimplemented    the method is not in this build
//   kInvalidArgument  it cuts the model in two, and this one cannot be (CutBeforeLinear)
absl::StatusOr<Recipe> RecipeFor(const v1::Job& job);

// Who of so many servers has which parameters.
Sharding ShardingOf(const LayerSplit& split, int servers);
Sharding ShardingOf(const Recipe& recipe, int servers);

// What a job begins with the values of a file of the whole model multiplied by, one factor for each parameter of
// `shape`, the model's; empty: they stay as they are (common/keyset/mean_share.h).
std::vector<float> InitialFactors(const v1::Job& job, const Recipe& recipe,
                                  const ModelShape& shape);

// The recipe that the members change to at the first exchange after which at most tail_steps minibatches are left:
// local_sgd, with the same local steps.
Recipe TailOf(const Recipe& recipe);

// The arrays, in their order, that a checkpoint has of the servers beside what they exchange. Those of two jobs
// are of the same use where they have the same names.
std::vector<std::string> ServerStates(const Recipe& recipe);

// The number of pushes in a mean, where `members` of a job that names `ranks` push to it: each weighs 1 over it.
int64_t PushesInMean(PushWeight weight, int64_t pushes, int64_t members, int64_t ranks);

// The shape of what the servers hold and exchange: the model's parameters in their order, and after them as many
// again for each averaged state, which begin at 0.
absl::StatusOr<ModelShape> ExchangedShape(const v1::Model& model, const Recipe& recipe);

}  // namespace tessera

#endif  // TESSERA_COMMON_METHOD_RECIPE_H_
