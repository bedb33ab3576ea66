// The servers of a job: who is attached, what each has applied, when it was last heard.
#ifndef TESSERA_SERVER_CONTROL_MEMBERS_SERVER_TABLE_H_
#define TESSERA_SERVER_CONTROL_MEMBERS_SERVER_TABLE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "proto/coordinator.pb.h"
#include "proto/coordinator_state.pb.h"
#include "server/control/job_facts.h"

namespace tessera {

// What happened to pushes that were not applied: nothing that becomes of parameters undoes it.
struct PushesLeft {
  uint64_t refused = 0;
  uint64_t refused_non_finite = 0;
  uint64_t duplicates = 0;
};

struct ServerRecord {
  // It said hello, and its parameters are the job's.
  bool known = false;
  // It has all that was pushed: it was there when the job began, or it has copied a replica.
  bool ready = false;
  // Its parameters are lost for good: nobody waits for its last counters.
  bool gone = false;
  // Another process is to speak for it, with the same parameters.
  bool handed_over = false;
  // It was told that it may end: what it says counts no more, and its place is another process's.
  bool left = false;
  // A connection stands. A known server without one has a lease to come back.
  bool attached = false;
  // When the last one ended.
  absl::Time detached;
  // The life of the process that came last, also once it is gone: where it comes again it counts on.
  uint64_t life = 0;
  std::string address;
  uint64_t parameter_bytes = 0;
  absl::Time last_heard;
  // The last plan that it acknowledged.
  Generation applied;
  // It has the parameters of the checkpoint that was ordered under this generation.
  Generation restored;
  // What is left of pushes to those that had its rank before is in it.
  v1::ServerCounters counters;
  absl::Time counters_at;
  PushesLeft before;
};

// Where servers are replicas, those that are gone or have not come count for nothing in what follows,
// and another one may take a rank that is free, or the next.
//
// It has more public methods than other classes: a server comes, goes, is lost and comes back, each an event of its
// own, and about half answer what one part of Membership asks of all servers at once.
//
// Time comes in as an argument; nothing here locks or sleeps.
class ServerTable {
 public:
  explicit ServerTable(const JobFacts& facts);

  // kInvalidArgument: whoever says hello has another job or layout than this one's.
  absl::Status CheckJob(const v1::ServerHello& hello) const;
  // A server says hello. On error the table stays as it was, but for a restarted one's `gone`:
  //   kInvalidArgument     another digest, layout or rank than the job's
  //   kAlreadyExists       a server with this rank is attached
  //   kFailedPrecondition  it was restarted after the job had `started`: its parameters are gone;
  //                        of a replica, that it was removed, or has come too early
  absl::Status Attach(const v1::ServerHello& hello, bool started, absl::Time now);
  // The connection of `life` ended. Before the job has started that frees the rank at once.
  void Detach(ShardId server, uint64_t life, bool started, absl::Time now);
  void OnCounters(ShardId server, const v1::ServerCounters& counters, absl::Time now);
  // False: it was known.
  bool OnRestored(ShardId server, Generation generation, absl::Time now);
  void OnApplied(ShardId server, Generation generation, absl::Time now);
  // Any message. True: it was missed before.
  bool OnHeard(ShardId server, absl::Time now);

  // Servers that have been silent for longer than the lease; they are still in the table.
  std::vector<ShardId> Expired(absl::Time now) const;
  // Before the start: it is waited for until it attaches anew, or speaks where its connection has stood.
  void Miss(ShardId server);
  void Forget(ShardId server);
  void SetGone(ShardId server) {
    records_[server.value()].gone = true;
    records_[server.value()].handed_over = false;
    ++changes_;
  }
  void SetHasLeft(ShardId server) {
    records_[server.value()].left = true;
    ++changes_;
  }
  // Its standby leads from now on, and has a lease to say so.
  void HandOver(ShardId server, absl::Time now);
  // It has a lease to speak, from now on.
  void GiveTime(ShardId server, absl::Time now) {
    records_[server.value()].last_heard = now;
    ++changes_;
  }
  void SetBack(ShardId server) {
    records_[server.value()].gone = false;
    ++changes_;
  }
  void SetReady(ShardId server) {
    records_[server.value()].ready = true;
    ++changes_;
  }
  // It takes part: pushes go to it.
  bool IsHere(ShardId server) const {
    return server.value() < records_.size() && Counts(records_[server.value()]);
  }
  bool IsReady(ShardId server) const { return IsHere(server) && at(server).ready; }

  const ServerRecord& at(ShardId server) const { return records_[server.value()]; }
  int count() const { return static_cast<int>(records_.size()); }
  bool AllKnown() const;
  bool AllRestored(Generation generation) const;
  // It was there and is not; its parameters are lost unless there is a checkpoint.
  bool IsLost(ShardId server) const { return records_[server.value()].gone; }
  // The job goes back to a checkpoint: nothing that was said of parameters holds any more, and those that
  // are lost may come anew, or speak again.
  void GoBack();
  // The rank was another process's: its parameters are lost. The same process has them still, however long nothing
  // was heard of it.
  bool IsReplaced(const v1::ServerHello& hello) const;
  // The least generation that all have applied.
  Generation AppliedByAll() const;
  std::vector<ShardId> Unknown() const;
  std::vector<ShardId> Behind(Generation generation) const;
  // All have sent their last counters, but those that are gone.
  bool AllClosed() const;
  Exchange HighestCommitted() const;
  Exchange LeastCommitted() const;
  // The pushes of all members that the server with most of them has applied since the job was first started.
  uint64_t MostPushes() const;
  // The sum over all servers that there ever were, by what each said last.
  uint64_t ReplicationPayloadBytes() const;

  // What others go by has changed: who is here and what each has said for good.
  uint64_t changes() const { return changes_; }
  void Save(v1::MembershipState* state) const;
  //   kInvalidArgument  there cannot be so many servers
  absl::Status Load(const v1::MembershipState& state);
  // No connection stands any more, and leases begin anew.
  void Reconnect(absl::Time now);
  void ExtendLeases(absl::Time now);

 private:
  absl::Status CheckRank(uint32_t rank, bool started) const;
  bool Counts(const ServerRecord& record) const {
    return !facts_.replicated || (record.known && !record.gone);
  }

  const JobFacts& facts_;
  std::vector<ServerRecord> records_;
  std::map<uint64_t, uint64_t>
      replication_payload_bytes_;  // by life, those included that are no more
  uint64_t changes_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_MEMBERS_SERVER_TABLE_H_
