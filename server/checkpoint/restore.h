// What a server begins with when the job goes on from a checkpoint.
#ifndef TESSERA_SERVER_CHECKPOINT_RESTORE_H_
#define TESSERA_SERVER_CHECKPOINT_RESTORE_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/manifest.h"
#include "server/control/saved_job.h"
#include "server/shard/shard.h"

namespace tessera {

// The checkpoint that `path` names: its own folder, or the newest whole one of those in it. All its sums
// are right; broken ones that were passed over are logged.
absl::StatusOr<std::unique_ptr<Checkpoint>> OpenForRestore(const std::string& path);

// Whether a job of `model` (JobFacts::model_manifest) can go on from `saved`. The parameters must be the same, and
// the servers' states mean the same (ServerStates); the numbers of servers and workers need not.
// Nor may values of the whole model become those of subnets, or the other way, where that multiplies some of them:
// `weights_of_mean_share` are JobFacts'. kFailedPrecondition says what differs, and which keys of the job that may come
// from, as model's and as saved's.
absl::Status CheckRestorable(const Manifest& saved, const Manifest& model,
                             const std::vector<int>& weights_of_mean_share = {});
// Whether a job that begins from `restored` (nullptr: anew) may write its checkpoints into `directory`: two runs of a
// job in one folder would take each other's for their own. kFailedPrecondition says which are there, and what to do.
absl::Status CheckFolder(const std::string& directory, const Manifest* restored);
// The error with the key checkpoint.directory in front.
absl::Status OfDirectory(const absl::Status& status);
// The keys of the job that have other values now, for people: "train.steps was 100 and is 200".
std::vector<std::string> ChangedKeys(const Manifest& saved, const Manifest& model);

// The checkpoint as the coordinator goes on from it. kInvalidArgument: its part of the manifest is broken.
absl::StatusOr<std::shared_ptr<const SavedState>> SavedStateOf(const Checkpoint& checkpoint,
                                                               bool from_restore);

// What a shard of `slices` begins with, all but read_rows. The codes are those of SavedStateOf.
absl::StatusOr<SavedShard> SavedShardOf(const Manifest& manifest, const std::string& path,
                                        const ShardSlices& slices);
// Gives `shard`, which was just made, its share of the checkpoint, once the files that it lies in have the right
// sums. `goes_on` is asked all the time. The codes are those of Checkpoint::VerifyRows and ReadRows.
absl::Status LoadShard(const Checkpoint& checkpoint, const std::function<bool()>& goes_on,
                       Shard* shard);

}  // namespace tessera

#endif  // TESSERA_SERVER_CHECKPOINT_RESTORE_H_
