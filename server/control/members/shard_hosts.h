// The server processes that host shards, in a job with standbys: who is there, and who is given up when.
//
// A host is lost when it is silent for a lease, or when its connection has ended and no other one comes for a moment,
// or when another process comes in its place. What then becomes of its shards is ShardOwners' to decide.
#ifndef TESSERA_SERVER_CONTROL_MEMBERS_SHARD_HOSTS_H_
#define TESSERA_SERVER_CONTROL_MEMBERS_SHARD_HOSTS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/coordinator_state.pb.h"
#include "proto/replication.pb.h"
#include "server/control/job_facts.h"

namespace tessera {

struct HostRecord {
  bool known = false;
  bool attached = false;
  uint64_t life = 0;
  // The life of the process that was given up last at this rank: it is refused.
  uint64_t lost_life = 0;
  std::string address;
  absl::Time last_heard;
  absl::Time detached;
  // What it was told of its wish to end.
  v1::LeaveAnswer leave;
};

class ShardHosts {
 public:
  // `facts` outlives it.
  explicit ShardHosts(const JobFacts& facts) : facts_(facts), hosts_(facts.servers) {}

  // kInvalidArgument: whoever says hello has another job, layout or rank than there is.
  absl::Status CheckJob(const v1::HostHello& hello) const;
  // Whether a host that says hello may attach.
  //   kInvalidArgument     another job, layout or rank
  //   kAlreadyExists       another process holds the rank
  //   kFailedPrecondition  it was given up: others have its shards
  absl::Status Check(const v1::HostHello& hello) const;
  // Another process, without a connection, is known at its rank: it is lost.
  bool Replaces(const v1::HostHello& hello) const;
  void Attach(const v1::HostHello& hello, absl::Time now);
  void Detach(uint32_t rank, uint64_t life, absl::Time now);
  void OnHeard(uint32_t rank, absl::Time now) { hosts_[rank].last_heard = now; }
  // False: it has been told this already.
  bool SetLeaveAnswer(uint32_t rank, const v1::LeaveAnswer& answer);
  // The host is none any more.
  void Remove(uint32_t rank);

  // Why the host is to be given up now; empty: it is not.
  std::string WhyLost(uint32_t rank, absl::Time now) const;
  // Hosts whose connection has ended, or that were not heard for half a lease, and when they are given up.
  struct Absent {
    uint32_t host = 0;
    bool is_cut_off = false;  // the connection has ended
    absl::Time since;
    absl::Time until;
  };
  std::vector<Absent> Away(absl::Time now) const;

  const HostRecord& at(uint32_t rank) const { return hosts_[rank]; }
  uint32_t count() const { return static_cast<uint32_t>(hosts_.size()); }
  bool IsHere(uint32_t rank) const { return hosts_[rank].known && hosts_[rank].attached; }
  int known() const;

  void Save(v1::OwnersState* state) const;
  //   kInvalidArgument  there cannot be so many
  absl::Status Load(const v1::OwnersState& state);
  // After Load, in another process: no host is attached, and all have a lease to come back.
  void Reconnect(absl::Time now);
  // Nobody was listening until now.
  void ExtendLeases(absl::Time now);

 private:
  const JobFacts& facts_;
  std::vector<HostRecord> hosts_;  // by rank
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_MEMBERS_SHARD_HOSTS_H_
