// Who leads and who follows one shard, and what is under way to change that.
#ifndef TESSERA_SERVER_CONTROL_MEMBERS_SHARD_OWNERSHIP_H_
#define TESSERA_SERVER_CONTROL_MEMBERS_SHARD_OWNERSHIP_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/coordinator_state.pb.h"
#include "proto/replication.pb.h"
#include "server/control/members/shard_hosts.h"

namespace tessera {

struct ShardOwnership {
  std::optional<uint32_t> leader;  // ranks of hosts
  std::optional<uint32_t> standby;
  bool in_sync = false;
  // Raised with every change; `lead_term` is the one in which the leader began to lead.
  uint64_t term = 0;
  uint64_t lead_term = 0;

  absl::Time retry;                   // it gets no standby before that
  std::optional<absl::Time> noticed;  // a takeover is under way
  uint64_t ready_term = 0;            // in which the standby takes the log
  std::optional<absl::Time> lost;     // since then nobody leads it

  // The standby takes the log of this term.
  bool IsReady() const { return standby && ready_term == term; }
  v1::ShardOwner Text(uint32_t shard) const;

  void Save(uint32_t shard, v1::OwnersState::Shard* saved) const;
  //   kInvalidArgument  its leader or standby is none of `hosts`, or they contradict each other
  absl::Status Load(uint32_t shard, const v1::OwnersState::Shard& saved, const ShardHosts& hosts);
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_MEMBERS_SHARD_OWNERSHIP_H_
