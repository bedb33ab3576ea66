#include "deploy/doctor/checkpoint_check.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/config/checkpoint_keys.h"
#include "server/checkpoint/checkpoint_directory.h"
#include "server/checkpoint/restore.h"
#include "server/control/epochs.h"
#include "server/control/saved_job.h"

namespace tessera {
namespace {

// Whether the job has steps left to train that it goes on with from `saved`.
Finding JudgeSteps(const SavedState& saved, const JobFacts& facts) {
  uint64_t step = saved.manifest.step;
  for (const CheckpointMember& member : saved.manifest.members) {
    step = std::min(step, member.step);  // Who is behind has its own.
  }
  Epochs epochs(facts);
  epochs.Restore(saved.job.cuts, saved.manifest.step);
  // 0 planned steps: the number depends on rows that are not known here, and nobody can say.
  const uint64_t planned = epochs.StepsPlanned();
  if (planned == 0 || step < planned) {
    return {Finding::Kind::kGood,
            absl::StrCat("checkpoint.restore: the job goes on from step ", saved.manifest.step),
            ""};
  }
  const bool has_steps = facts.steps > 0;
  return {Finding::Kind::kNote,
          absl::StrCat("checkpoint.restore: it is of step ", saved.manifest.step, ", and ",
                       has_steps ? "train.steps" : "train.epochs", " is ",
                       has_steps ? facts.steps : facts.epochs, ": nothing is left to train"),
          has_steps ? "raise train.steps" : "raise train.epochs"};
}

}  // namespace

Findings CheckCheckpoints(const v1::Checkpoint& keys, const JobFacts& facts, bool runs) {
  Findings findings;
  std::unique_ptr<Checkpoint> restored;
  const bool has_own_disks = keys.store() == kOwnDisks;
  if (has_own_disks && !keys.restore().empty()) {
    findings.push_back({Finding::Kind::kNote,
                        "checkpoint.restore: what it goes on from is on all servers' disks "
                        "together, and server 0 looks for it when they are there",
                        ""});
  } else if (!keys.restore().empty()) {
    std::vector<ListedCheckpoint> broken;
    // The newest checkpoint that is whole, as the servers will look for it.
    absl::StatusOr<std::unique_ptr<Checkpoint>> found = NamedCheckpoint(keys.restore(), &broken);
    for (const ListedCheckpoint& each : broken) {
      findings.push_back({Finding::Kind::kNote,
                          absl::StrCat("checkpoint.restore: that of step ", each.step,
                                       " is passed over: ", each.status.message()),
                          "the job goes on from an older one"});
    }
    const auto problem = [&](const absl::Status& status, const char* advice) {
      findings.push_back({Finding::Kind::kProblem,
                          absl::StrCat("checkpoint.restore: ", status.message()), advice});
    };
    absl::Status status = found.status();
    if (status.ok())
      status =
          CheckRestorable((*found)->manifest(), *facts.model_manifest, facts.weights_of_mean_share);
    std::shared_ptr<const SavedState> saved;
    if (status.ok()) {
      absl::StatusOr<std::shared_ptr<const SavedState>> read =
          SavedStateOf(**found, /*from_restore=*/true);
      status = read.status();
      if (read.ok()) saved = *std::move(read);
    }
    if (!status.ok()) {
      problem(status, "servers would end with 2; name another checkpoint");
      // What follows would speak of a checkpoint that cannot be used.
      return findings;
    }
    if (const absl::Status size = CheckBatchSize(*saved, facts); !size.ok()) {
      problem(size, "server 0 would end with 2");
      return findings;
    }
    restored = *std::move(found);
    findings.push_back(JudgeSteps(*saved, facts));
  }
  // While the job runs its own server has the folder.
  if (keys.directory().empty() || runs) return findings;
  // Which of its steps the job goes on from is not known here.
  if (has_own_disks && !keys.restore().empty()) return findings;
  // Another job's checkpoints in that folder would be mixed with this one's.
  const absl::Status is_free =
      CheckFolder(keys.directory(), restored == nullptr ? nullptr : &restored->manifest());
  if (!is_free.ok()) {
    findings.push_back(
        {Finding::Kind::kProblem, std::string(is_free.message()), "server 0 would end with 2"});
  }
  return findings;
}

}  // namespace tessera
