#include "common/config/train_check.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/layout/tensor_layout.h"

namespace tessera {
namespace {

void CheckOptimizer(const v1::Optimizer& optimizer, KeyErrors* errors) {
  if (!errors->Sound("train.optimizer")) return;
  if (optimizer.sgd().nesterov() && optimizer.sgd().momentum() == 0) {
    errors->Add(
        "train.optimizer.sgd.nesterov",
        "got true with momentum 0, want a momentum above 0: it says how momentum is applied");
  }
}

// Refuses milestones that do not ascend.
void CheckMilestones(const v1::MilestoneRate& milestones, KeyErrors* errors) {
  for (int i = 1; i < milestones.at_size(); ++i) {
    if (milestones.at(i) > milestones.at(i - 1)) continue;
    errors->Add(absl::StrCat("train.schedule.decay.milestones.at.", i),
                absl::StrCat("got ", milestones.at(i), " behind ", milestones.at(i - 1),
                             ", want ascending numbers of examples"));
  }
}

void CheckSchedule(const v1::Schedule& schedule, KeyErrors* errors) {
  if (!errors->Sound("train.schedule")) return;
  const auto within = [&](int64_t limit, absl::string_view name, absl::string_view why) {
    if (schedule.warmup() <= limit) return;
    errors->Add("train.schedule.warmup",
                absl::StrCat("got ", schedule.warmup(), ", want at most decay.", name,
                             ", which is ", limit, ": ", why));
  };
  constexpr absl::string_view kAtItsFloor = "the rate would be at its floor before it is warm";
  constexpr absl::string_view kDrops = "the rate would drop before it is warm";
  const v1::RateDecay& decay = schedule.decay();
  if (decay.has_cosine()) {
    within(decay.cosine().examples(), "cosine.examples", kAtItsFloor);
  } else if (decay.has_linear()) {
    within(decay.linear().examples(), "linear.examples", kAtItsFloor);
  } else if (decay.has_step()) {
    within(decay.step().every(), "step.every", kDrops);
  } else if (decay.has_milestones()) {
    CheckMilestones(decay.milestones(), errors);
    within(decay.milestones().at(0), "milestones.at[0]", kDrops);
  }
}

// An accuracy is a share; a score, which a job of tensors has instead, is any number.
void CheckTarget(const v1::Job& job, KeyErrors* errors) {
  const double target = job.train().target_accuracy();
  if (IsOfTensors(job.model()) || target <= 1 || !errors->Sound("train.target_accuracy")) return;
  errors->Add("train.target_accuracy",
              absl::StrCat("got \"", target, "\", want a number in [0, 1]"));
}

}  // namespace

void CheckTrain(const v1::Job& job, KeyErrors* errors) {
  CheckOptimizer(job.train().optimizer(), errors);
  CheckSchedule(job.train().schedule(), errors);
  CheckTarget(job, errors);
}

}  // namespace tessera
