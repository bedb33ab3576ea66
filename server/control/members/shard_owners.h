// Which host leads each shard, and which one follows it (proto/replication.proto).
//
//   hosts come           host r leads shard r; once all are there each shard gets a standby
//   a standby is lost    its leader is told to go on without; another host follows
//   a leader is lost     its standby leads, if it had all that was acknowledged. Otherwise the shard is
//                        lost, and a host that comes anew leads it, with nothing in it. If none comes for
//                        kPatienceLeases, one of those that are there does
//   a host leaves       others follow what it followed; once the standbys of what it leads have all, and another
//                       host follows where there is one, they lead, and it may end
// When a host is lost: shard_hosts.h. Every change raises the shard's term.
//
// It is part of the coordinator's state: another coordinator goes on with the same leaders and terms. What an
// order follows from is kept before the order is given.
#ifndef TESSERA_SERVER_CONTROL_MEMBERS_SHARD_OWNERS_H_
#define TESSERA_SERVER_CONTROL_MEMBERS_SHARD_OWNERS_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "proto/coordinator_state.pb.h"
#include "proto/replication.pb.h"
#include "proto/status.pb.h"
#include "server/control/job_facts.h"
#include "server/control/members/shard_hosts.h"
#include "server/control/members/shard_ownership.h"

namespace tessera {

// A message for one host.
struct HostOutgoing {
  uint32_t host = 0;
  v1::HostOrder order;
};

// Pure: events and the time come in, orders come out.
//
// It has more public methods than other classes: hosts, members and servers that are to leave each have events for it.
class ShardOwners {
 public:
  // A process that is started again takes its shard without loading another host: it has so long to come, as
  // members have of a job that goes back to a checkpoint.
  static constexpr int kPatienceLeases = 3;

  explicit ShardOwners(const JobFacts& facts);

  v1::OwnersState Save() const;
  //   kInvalidArgument  it contradicts itself, or the job
  absl::Status Load(const v1::OwnersState& state);
  // Grows whenever something changes that orders follow from, or that nobody would say again.
  uint64_t changes() const { return changes_; }
  // After Load, in another process: no host is attached, and all have a lease to come back.
  void Reconnect(absl::Time now);
  // Nobody was listening until now.
  void ExtendLeases(absl::Time now);

  // --- hosts ---

  // Codes are those of ShardHosts::Check.
  absl::Status Attach(const v1::HostHello& hello, absl::Time now);
  void Detach(uint32_t host, uint64_t life, absl::Time now);
  void OnMessage(uint32_t host, const v1::HostMessage& message, absl::Time now);
  void Tick(absl::Time now);
  // Nothing was heard of the shard for a lease, whatever its host says.
  void OnShardSilent(ShardId shard, absl::Time now);

  // --- a host that was asked to end: one at a time ---

  // Nobody: nullopt. From then on it follows nothing that another host could.
  void SetLeaving(std::optional<uint32_t> host, absl::Time now);
  // For what it has to wait yet ("standby of shard 1"); empty: nothing that was acknowledged is lost with it, and
  // whatever somebody else can follow is followed. The latter is waited for kPatienceLeases and no longer.
  std::vector<std::string> LeavingWaitsFor(absl::Time now) const;
  // It leads a shard that no other host is there to take.
  bool LeavesNobodyBehind() const;
  // It is one no longer: as one that is lost, but that nobody had to notice.
  void LetGo(uint32_t host, absl::Time now);
  // What it is told with every order from now on.
  void SetLeaveAnswer(uint32_t host, const v1::LeaveAnswer& answer);
  // 0: there is none.
  uint64_t LifeOf(uint32_t host) const {
    return host < hosts_.count() && hosts_.at(host).known ? hosts_.at(host).life : 0;
  }

  // --- the job ---

  // Shards are as they begin, and each has a standby, or can have none.
  bool MayStart() const;
  // Shards are no longer as they began: a standby needs a copy.
  void OnStarted() {
    started_ = true;
    ++changes_;
  }
  // All shards go back to a checkpoint: what standbys have is of no use.
  void GoBack();
  // The shard's leader has read it. A standby that followed before may say that it has all, and has what was
  // there before: it begins anew.
  void OnRestored(ShardId shard, absl::Time now);
  void End(absl::string_view failure);

  // --- shards ---

  // Whoever serves the shard from this address, and says that it began in this term, is its leader.
  bool Leads(ShardId shard, uint64_t lead_term, absl::string_view address) const;
  // The shard's new leader has the plan of members.
  void OnLed(ShardId shard, absl::Time now);
  // One has yet to have it.
  bool IsTakingOver() const;
  // Every shard has a standby that could take over.
  bool AllProtected() const;
  // Nothing that was acknowledged is lost with this host.
  bool CanDoWithout(uint32_t host) const;
  struct Loss {
    ShardId shard;
    bool taken_over = false;
    std::string why;
    // It was lost before, and somebody leads it from now on, with nothing in it.
    bool led_anew = false;
  };
  std::vector<Loss> TakeLosses() { return std::exchange(losses_, {}); }
  // "standby of shard 1"
  std::vector<std::string> WaitingFor() const;
  const ShardHosts& hosts() const { return hosts_; }
  void Fill(v1::JobStatus* status) const;
  const std::vector<ShardOwnership>& shards() const { return shards_; }

  std::vector<HostOutgoing> TakeOutbox();

 private:
  void Lose(uint32_t host, absl::string_view why, absl::Time now);
  // Its shards are others' or nobody's from now on.
  void Forget(uint32_t host, absl::string_view why, absl::Time now);
  void DropStandby(size_t shard);
  void Lead(size_t shard, uint32_t host);
  // A host that is there leads what nobody has come for.
  void LeadLost(absl::Time now);
  void Assign(absl::Time now);
  // Who could follow the shard that `leader` leads.
  std::optional<uint32_t> FollowerFor(size_t shard, uint32_t leader) const;
  v1::HostOrder OrderFor(uint32_t host) const;
  void MarkShard(const ShardOwnership& shard);

  const JobFacts& facts_;
  ShardHosts hosts_;
  std::vector<ShardOwnership> shards_;
  bool started_ = false;
  bool ended_ = false;
  std::string failure_;
  std::optional<uint32_t> leaving_;
  absl::Time leaving_since_;
  std::vector<Loss> losses_;
  std::set<uint32_t> changed_;  // hosts whose order is to be sent
  std::vector<std::pair<uint32_t, std::string>> refusals_;
  std::vector<HostOutgoing> let_go_;
  uint64_t takeovers_ = 0;
  std::vector<double> takeover_seconds_;
  uint64_t changes_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_MEMBERS_SHARD_OWNERS_H_
