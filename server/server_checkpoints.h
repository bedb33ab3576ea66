// A server process's part in checkpoints: where it reads and writes them.
#ifndef TESSERA_SERVER_SERVER_CHECKPOINTS_H_
#define TESSERA_SERVER_SERVER_CHECKPOINTS_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/coordinator.pb.h"
#include "proto/job.pb.h"
#include "server/checkpoint/checkpoint_keeper.h"
#include "server/checkpoint/checkpoint_store.h"
#include "server/checkpoint/shard_saver.h"
#include "server/control/job_facts.h"
#include "server/rpc/live_coordinator.h"
#include "server/shard/shard_thread.h"

namespace tessera {

// Where a server process reads and writes checkpoints. Any thread, once started.
class ServerCheckpoints {
 public:
  // `facts` follow from `job`.
  ServerCheckpoints(const v1::Job& job, const JobFacts& facts, int rank);
  ~ServerCheckpoints();
  // Where this process, which is prepared, reads and writes what another server's shard has, which it leads now.
  std::unique_ptr<ServerCheckpoints> OfShard(int rank) const;

  // Called before the coordinator is made: finds what the job begins from, unless it `goes_on` with what the
  // coordinator has kept.
  absl::Status Prepare(bool goes_on);
  // What the job begins from; nullptr: it begins anew, or that is not found yet.
  const std::shared_ptr<const SavedState>& restored() const { return restored_; }

  // Called where the coordinator is about to be: finds what the job begins from, if that is not found yet, and does
  // from now on what the coordinator wants done with the disk. Says no early, where checkpoints cannot be read or
  // written: kFailedPrecondition and the codes of the disk, with what to do. Without `is_elected` nobody else of this
  // job can be doing this, so that whoever uses the folder is another job.
  absl::Status Keep(LiveCoordinator* coordinator, bool goes_on, bool is_elected);
  // Called when the coordinator is elsewhere: gives the folder up.
  void Depose();
  // Writes this server's part of a checkpoint, for AttachLink; goes on after the call.
  void Save(const v1::CheckpointOrder& order, ShardThread* shard,
            std::function<void(v1::CheckpointPart)> done);
  // What the shard that `make` makes, which awaits Load, has in that checkpoint. As long as it takes to read,
  // unless `goes_on` says no.
  //   kFailedPrecondition  the checkpoint is of another step, or CheckRestorable's; and LoadShard's codes
  absl::StatusOr<std::unique_ptr<Shard>> Read(const v1::RestoreOrder& order,
                                              const std::function<std::unique_ptr<Shard>()>& make,
                                              const std::function<bool()>& goes_on) const;
  // CheckpointStore's. `held` is there once prepared.
  void SetServers(std::vector<std::string> addresses) { store_->SetServers(std::move(addresses)); }
  HeldCheckpoints* held() const { return store_->held(); }
  bool writes() const { return saver_ != nullptr; }
  // The path of checkpoint.restore that the job has here.
  const std::string& restore_path() const { return restore_path_; }

 private:
  ServerCheckpoints(const ServerCheckpoints& own, int rank);
  absl::Status FindRestored();
  void Release();

  const std::string directory_path_;
  const std::string restore_path_;
  const int rank_;
  const Manifest model_;
  const std::vector<int> weights_of_mean_share_;  // JobFacts'
  std::shared_ptr<const SavedState> restored_;
  const std::shared_ptr<CheckpointStore> store_;  // the process's
  std::unique_ptr<ShardSaver> saver_;
  LiveCoordinator* coordinator_ = nullptr;
  std::unique_ptr<CheckpointKeeper> keeper_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SERVER_CHECKPOINTS_H_
