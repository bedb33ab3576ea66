#include "deploy/doctor/checkpoint_check.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/checkpoint/checkpoint_directory.h"
#include "server/checkpoint/restore.h"

namespace tessera {

Findings CheckCheckpoints(const v1::Job& job, const Manifest& model, bool runs) {
  Findings findings;
  const v1::Checkpoint& keys = job.checkpoint();
  std::unique_ptr<Checkpoint> restored;
  if (!keys.restore().empty()) {
    std::vector<ListedCheckpoint> broken;
    absl::StatusOr<std::unique_ptr<Checkpoint>> found = NamedCheckpoint(keys.restore(), &broken);
    for (const ListedCheckpoint& each : broken) {
      findings.push_back({Finding::Kind::kNote,
                          absl::StrCat("checkpoint.restore: that of step ", each.step,
                                       " is passed over: ", each.status.message()),
                          "the job goes on from an older one"});
    }
    absl::Status status = found.status();
    if (status.ok()) status = CheckRestorable((*found)->manifest(), model);
    if (!status.ok()) {
      findings.push_back({Finding::Kind::kProblem,
                          absl::StrCat("checkpoint.restore: ", status.message()),
                          "servers would end with 2; name another checkpoint"});
      return findings;
    }
    restored = *std::move(found);
    const uint64_t step = restored->manifest().step,
                   steps = static_cast<uint64_t>(job.train().steps());
    if (steps > 0 && step >= steps) {
      findings.push_back(
          {Finding::Kind::kNote,
           absl::StrCat("checkpoint.restore: it is of step ", step, ", and train.steps is ", steps,
                        ": nothing is left to train"),
           "raise train.steps"});
    } else {
      findings.push_back({Finding::Kind::kGood,
                          absl::StrCat("checkpoint.restore: the job goes on from step ", step),
                          ""});
    }
  }
  if (keys.directory().empty() || runs) return findings;
  const absl::Status is_free =
      CheckFolder(keys.directory(), restored == nullptr ? nullptr : &restored->manifest());
  if (!is_free.ok()) {
    findings.push_back(
        {Finding::Kind::kProblem, std::string(is_free.message()), "server 0 would end with 2"});
  }
  return findings;
}

}  // namespace tessera
