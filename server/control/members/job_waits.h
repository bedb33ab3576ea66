// For whom a member and the job wait, in words: "server 1", "worker 0".
#ifndef TESSERA_SERVER_CONTROL_MEMBERS_JOB_WAITS_H_
#define TESSERA_SERVER_CONTROL_MEMBERS_JOB_WAITS_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/control/job_facts.h"
#include "server/control/members/job_stage.h"
#include "server/control/members/member_table.h"
#include "server/control/members/plans.h"
#include "server/control/members/proposals.h"
#include "server/control/members/server_table.h"
#include "server/control/members/shard_owners.h"
#include "server/control/members/start_list.h"
#include "server/control/members/starting_point.h"
#include "server/control/members/warm_up.h"

namespace tessera {

// When many are waited for, this many of them are named.
constexpr size_t kWaitNamesMax = 16;

// Looks at the state of the job and keeps none.
class JobWaits {
 public:
  // What the answers are read from. All outlive it; `owners` is nullptr where the job keeps no standbys.
  struct Tables {
    const JobFacts& facts;
    const JobStage& stage;
    const ServerTable& servers;
    const MemberTable& members;
    const Plans& plans;
    const Proposals& proposals;
    const StartingPoint& start;
    const StartList& start_list;
    const WarmUp& warm_up;
    const ShardOwners* owners;
  };
  explicit JobWaits(const Tables& tables) : on_(tables) {}

  // For whom this member waits. Empty once it is admitted.
  std::vector<std::string> OfMember(const MemberRecord& member) const;
  // For whom the job waits: before the start for servers and workers that have not come, then for those whose pushes
  // the shards wait for; and before all these for servers that are known to be cut off. With `now` since when and for
  // how long is said, too.
  std::vector<std::string> OfJob(std::optional<absl::Time> now) const;

 private:
  std::vector<std::string> OfWaitingMember(const MemberRecord& member) const;
  std::vector<std::string> BeforeStart() const;
  std::vector<std::string> LostServers() const;
  // Servers and hosts that are cut off.
  std::vector<std::string> CutOff(std::optional<absl::Time> now) const;
  // Ranks of the workers whose pushes the servers wait for.
  std::set<uint32_t> WaitedForByServers() const;

  const Tables on_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_MEMBERS_JOB_WAITS_H_
