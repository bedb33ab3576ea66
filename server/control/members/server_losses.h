// Servers that own a shard of the parameters and are lost: the job waits for them, or has failed.
//
//   standbys     a shard is lost only if no standby can take it over (shard_owners.h)
//   checkpoints  the job is paused. A server that was only silent and speaks again has all that it had; one that is
//                started again makes the job go back to its last checkpoint
//   otherwise    the shard's parameters are gone: the job fails
//
// Where servers are replicas none of this holds: the others go on (Membership).
#ifndef TESSERA_SERVER_CONTROL_MEMBERS_SERVER_LOSSES_H_
#define TESSERA_SERVER_CONTROL_MEMBERS_SERVER_LOSSES_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "server/control/members/job_drain.h"
#include "server/control/job_facts.h"
#include "server/control/members/job_stage.h"
#include "server/control/members/server_table.h"
#include "server/control/members/shard_owners.h"
#include "server/control/members/starting_point.h"

namespace tessera {

class ServerLosses {
 public:
  // All outlive it. `owners` is nullptr where the job keeps no standbys.
  ServerLosses(const JobFacts& facts, const StartingPoint& start, const JobDrain& drain,
               ServerTable* servers, ShardOwners* owners, JobStage* stage)
      : facts_(facts),
        start_(start),
        drain_(drain),
        servers_(*servers),
        owners_(owners),
        stage_(*stage) {}

  // The job could go back to a checkpoint.
  bool CanGoBack() const {
    return start_.saved() != nullptr && !stage_.training_over() && !drain_.wanted() &&
           !stage_.closed();
  }
  // The server is lost, of a job that has started. It may be said again until the server is back.
  void OnLost(ShardId server, absl::string_view why);
  // The server has been silent for a lease.
  void OnSilent(ShardId server, absl::Time now);
  // Something is heard from the server. Where the job waits for it, it was only silent.
  void OnHeard(ShardId server);
  // Does what follows from lost leaders of shards. Returns the shards that standbys have taken over.
  std::vector<ShardId> FollowOwners(absl::Time now);
  // The job is to end, and nobody waits for lost servers any more: it fails if it does wait for one.
  void EndPause();

 private:
  const JobFacts& facts_;
  const StartingPoint& start_;
  const JobDrain& drain_;
  ServerTable& servers_;
  ShardOwners* const owners_;
  JobStage& stage_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_MEMBERS_SERVER_LOSSES_H_
