// A training method is a recipe: one choice from each of a few small sets (docs/methods.md).
//
// Everything else in the program sees key sets, payloads and verdicts, and never a method's name.
#ifndef TESSERA_COMMON_METHOD_RECIPE_H_
#define TESSERA_COMMON_METHOD_RECIPE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/consistency/policy.h"
#include "common/rule/rule.h"
#include "proto/job.pb.h"

namespace tessera {

// What is sent. The numbers are v1::PayloadKind's.
enum class PayloadKind {
  kGradient = 0,  // of one minibatch; the shard applies the job's optimizer
  kDelta = 1,  // replica after minus before the last local steps; the worker applied the optimizer
  kValue = 2,  // replaces the entries
};

struct Recipe {
  // As in the job file, and in words for status and report.
  std::string name;
  std::string description;
  // Minibatches between exchanges.
  int64_t local_steps = 1;
  PayloadKind payload = PayloadKind::kGradient;
  // All members make the same exchange together, so a member's exchange tells its step.
  bool lockstep = true;
  // One object per shard.
  std::function<std::unique_ptr<ConsistencyPolicy>()> make_policy;
  std::function<std::unique_ptr<UpdateRule>()> make_rule;
};

// The recipe that `job` names. kUnimplemented for a method that is not in this build; the job
// reader has refused it before.
absl::StatusOr<Recipe> RecipeFor(const v1::Job& job);

}  // namespace tessera

#endif  // TESSERA_COMMON_METHOD_RECIPE_H_
