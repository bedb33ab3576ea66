#include "common/method/recipe.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/codec/codecs.h"
#include "common/consistency/example_weight.h"
#include "common/keyset/mean_share.h"
#include "common/keyset/subnet.h"
#include "common/layout/tensor_layout.h"
#include "common/method/catalog.h"
#include "common/method/largest_exchanged.h"
#include "common/method/train_rows.h"

namespace tessera {
namespace {

// A job whose parameters are all too small for a codec moves f32, whatever it names; one without a model is described
// as if they were not.
bool IsIdle(const Codec& codec, const absl::StatusOr<int64_t>& largest) {
  return largest.ok() && *largest > 0 && *largest < codec->traits().parameter_entries_min;
}

// The codecs in words, with a remark where the model's parameters are too small for the codec that the job names.
std::string DescribeCodecs(const v1::Model& model, const Recipe& recipe) {
  CodecChoice moved = recipe.codecs;
  const absl::StatusOr<int64_t> largest = LargestExchanged(model, recipe);
  std::string idle;
  for (Codec* const codec : {&moved.push, &moved.pull}) {
    if (!IsIdle(*codec, largest)) continue;
    idle = absl::StrCat(" (", (*codec)->name(), " rounds parameters of ",
                        (*codec)->traits().parameter_entries_min,
                        " entries and more, and the largest has ", *largest, ")");
    *codec = Codec();
  }
  return absl::StrCat(Describe(moved), idle);
}

// Takes the codecs that the job names, and keeps the method's own where it names none.
void TakeCodecs(const v1::Job& job, Recipe* recipe) {
  const v1::CodecPair& pair = job.codec();
  CodecChoice& codecs = recipe->codecs;
  if (pair.push().kind_case() != v1::Codec::KIND_NOT_SET) codecs.push = CodecOf(pair.push());
  if (pair.pull().kind_case() != v1::Codec::KIND_NOT_SET) codecs.pull = CodecOf(pair.pull());
  codecs.error_feedback = pair.error_feedback();
  codecs.flush = pair.flush();
  // Whoever moves plain f32 both ways needs no words about it.
  if (codecs.push == Codec() && codecs.pull == Codec()) return;
  absl::StrAppend(&recipe->description, "; ", DescribeCodecs(job.model(), *recipe));
}

// Members have minibatches of different sizes. A mean over all who push is one of their examples already.
void WeighByExamples(const v1::Job& job, Recipe* recipe) {
  absl::StrAppend(&recipe->description,
                  "; slower workers have smaller minibatches, so that all take equally long");
  if (recipe->push_weight == PushWeight::kOfMean) return;
  const auto whole = static_cast<uint64_t>(job.train().batch_size() * recipe->local_steps);
  recipe->make_policy = [make = recipe->make_policy, whole] {
    return MakeExampleWeighted(make(), whole);
  };
}

}  // namespace

absl::StatusOr<Recipe> RecipeFor(const v1::Job& job) {
  const Method* const method = MethodOf(job);
  if (method == nullptr) {
    return absl::UnimplementedError(absl::StrCat("method: number ", job.method().kind_case(),
                                                 " is not in this build; see docs/methods.md"));
  }
  if (IsOfTensors(job.model()) && method->why_layers != nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("method: ", WhyNoTensors(job)));
  }
  TESSERA_ASSIGN_OR_RETURN(Recipe recipe, method->recipe(job));
  if (DealsBySpeed(job)) WeighByExamples(job, &recipe);
  TakeCodecs(job, &recipe);
  return recipe;
}

std::vector<float> InitialFactors(const v1::Job& job, const Recipe& recipe,
                                  const ModelShape& shape) {
  if (!recipe.subnets) return {};
  // Evaluation divides sums over cut inputs by the number of sites; values of a whole network are multiplied first.
  return FactorsOfWhole(shape, GroupsOf(shape, recipe.subnet_rules), job.cluster().workers());
}

Recipe TailOf(const Recipe& recipe) {
  TESSERA_CHECK(recipe.subnets && recipe.tail_steps > 0);
  Recipe tail = recipe;
  tail.subnets = false;
  tail.parts_by_speed = false;
  tail.tail_steps = 0;
  // The tail exchanges changes of the whole model, as local SGD does.
  tail.payload = PayloadKind::kDelta;
  return tail;
}

std::vector<std::string> ServerStates(const Recipe& recipe) {
  // Subnets assign values as they come, and no rule keeps a state.
  if (recipe.subnets) return {};
  std::vector<std::string> names = recipe.rule_states;
  // The core, or what the next one is selected from, where servers are at the same exchange.
  if (recipe.core && recipe.lockstep) names.push_back("core");
  return names;
}

int64_t PushesInMean(PushWeight weight, int64_t pushes, int64_t members, int64_t ranks) {
  switch (weight) {
    case PushWeight::kOfMean:
      return members;
    case PushWeight::kOfRanks:
      return ranks;
    case PushWeight::kOfSome:
      return std::min(pushes, members);
    case PushWeight::kWhole:
      break;
  }
  return 1;
}

absl::StatusOr<ModelShape> ExchangedShape(const v1::Model& model, const Recipe& recipe) {
  TESSERA_ASSIGN_OR_RETURN(ModelShape shape, ShapeOf(model));
  const size_t count = shape.parameters.size();
  for (const std::string& state : recipe.averaged_states) {
    // States lie behind the parameters, one copy of their shapes for each, so that everything which moves parameters
    // moves them, too.
    for (size_t i = 0; i < count; ++i) {
      ParameterSpec spec = shape.parameters[i];
      absl::StrAppend(&spec.name, ".", state);
      // States begin at 0 on every worker; only parameters are drawn.
      spec.initial_bound = 0;
      spec.initial_constant = 0;
      shape.size += spec.size();
      shape.parameters.push_back(std::move(spec));
    }
  }
  return shape;
}

Sharding ShardingOf(const LayerSplit& split, int servers) {
  Sharding sharding(servers);
  if (split.linear_servers == 0) return sharding;
  sharding.cut = split.cut.parameter;
  sharding.last = split.linear_servers;
  return sharding;
}

Sharding ShardingOf(const Recipe& recipe, int servers) {
  if (recipe.split) return ShardingOf(*recipe.split, servers);
  return ShardCount(recipe.placement, servers);
}

}  // namespace tessera
