// Where a job's checkpoints are kept, as a server sees it: checkpoint.store.
#ifndef TESSERA_SERVER_CHECKPOINT_CHECKPOINT_STORE_H_
#define TESSERA_SERVER_CHECKPOINT_CHECKPOINT_STORE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/part_file.h"
#include "proto/coordinator.pb.h"
#include "proto/job.pb.h"
#include "server/checkpoint/held_checkpoints.h"
#include "server/control/checkpoints.h"

namespace tessera {

// Its methods in the order in which a server calls them; those of the server that has the coordinator have one thread.
class CheckpointStore {
 public:
  virtual ~CheckpointStore() = default;

  // --- every server ---
  // Called before anybody hears of this server.
  virtual absl::Status Prepare() = 0;
  // What others of the job write and read here; nullptr: nothing.
  virtual HeldCheckpoints* held() { return nullptr; }
  // Where the servers are now, by rank; an empty one is where it was. Any thread.
  virtual void SetServers(std::vector<std::string> addresses) = 0;
  // Opens files of the checkpoint that comes into being. The store outlives it.
  virtual OpenPart Parts() = 0;
  // The checkpoint that the order names, of which what is read is there, or is brought.
  virtual absl::StatusOr<std::unique_ptr<Checkpoint>> Open(const v1::RestoreOrder& order) = 0;
  // The server has read what it wanted: what it is to keep of the checkpoint, too, is brought.
  virtual void Complete(const Checkpoint& checkpoint) = 0;

  // --- the server that has the coordinator, but where each finds by itself what the job begins from ---
  virtual bool each_finds() const = 0;
  // The checkpoint that checkpoint.restore names: itself, or the newest whole one. Broken ones are logged. As long as
  // it takes to read all.
  virtual absl::StatusOr<std::unique_ptr<Checkpoint>> FindRestored() = 0;
  // From now on this process begins and commits, in a job that begins from `restored` (nullptr: anew) or, with
  // `goes_on`, goes on. Without `is_elected` nobody else of this job can be doing this.
  //   kFailedPrecondition  another job uses it, or has; and the codes of the disk, all with what to do
  virtual absl::Status Take(const Manifest* restored, bool goes_on, bool is_elected) = 0;
  // Somebody else does from now on. Take may follow.
  virtual void Release() = 0;
  // Does what the coordinator wants done, as long as the disk needs. What cannot be given up or pruned only the log
  // tells of.
  virtual absl::Status Perform(const DiskTask& task) = 0;
};

// The store that the job wants, of server `rank`.
std::unique_ptr<CheckpointStore> MakeCheckpointStore(const v1::Job& job, int rank,
                                                     const std::string& job_digest,
                                                     const Manifest& model);

}  // namespace tessera

#endif  // TESSERA_SERVER_CHECKPOINT_CHECKPOINT_STORE_H_
