// Who takes part in a job: the servers and workers that come, go and are lost, and what the others are told of it.
//
// Start          all servers attached, ranks 0 .. workers-1 joined
//                -> plan 1 -> all servers applied it -> those workers are admitted at exchange 1.
// Late join      see admission.h.
// Removal        a plan without the member, at once.
// Restore        a lost server's parameters are gone: the job fails, unless it can go back to a checkpoint
//                (server_losses.h, starting_point.h). All servers attached -> told to read the checkpoint -> all have
//                -> as at the start, with the exchange after the checkpoint's.
// Where servers are replicas the others go on:
// Lost server    it and the worker beside it are removed, and nobody pushes to it any more.
// New server     workers are told to push to it -> it copies a replica (server/shard/replica_copying.h) -> a worker of
//                its rank may join.
#ifndef TESSERA_SERVER_CONTROL_MEMBERS_MEMBERSHIP_H_
#define TESSERA_SERVER_CONTROL_MEMBERS_MEMBERSHIP_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "proto/coordinator.pb.h"
#include "proto/coordinator_state.pb.h"
#include "server/control/members/admission.h"
#include "server/control/members/job_drain.h"
#include "server/control/job_facts.h"
#include "server/control/members/job_stage.h"
#include "server/control/members/job_waits.h"
#include "server/control/members/trained_halves.h"
#include "server/control/members/lost_residuals.h"
#include "server/control/members/member_table.h"
#include "server/control/members/partial_pushes.h"
#include "server/control/members/plans.h"
#include "server/control/members/replicated_sites.h"
#include "server/control/saved_states.h"
#include "server/control/members/server_directory.h"
#include "server/control/members/server_losses.h"
#include "server/control/members/server_outbox.h"
#include "server/control/members/server_table.h"
#include "server/control/members/shard_owners.h"
#include "server/control/members/start_list.h"
#include "server/control/members/starting_point.h"
#include "server/control/members/warm_up.h"

namespace tessera {

// Pure: events and the time come in, messages and states come out. What happens to members and servers is decided
// here and in the parts that it owns, which have a header each.
//
// It has more public methods than other classes because it is where the parts below meet: about half are their doors.
class Membership {
 public:
  explicit Membership(const JobFacts& facts);
  Membership(const Membership&) = delete;

  // --- servers ---

  // `hello` has this job (ServerTable::CheckJob). Codes are those of ServerTable::Attach. A server that comes back gets
  // the plan and the open proposal.
  absl::Status Attach(const v1::ServerHello& hello, absl::Time now);
  void Detach(ShardId server, uint64_t life, absl::Time now);
  // `server` is attached.
  void OnShardMessage(ShardId server, const v1::ShardMessage& message, absl::Time now);
  // False: whoever speaks for the shard was given up, and has yet to hear of it.
  bool Hears(ShardId shard) const {
    return (!owners_ || servers_.at(shard).attached) && !servers_.at(shard).left;
  }
  // What the server says of its parameters counts: it has those that the job begins or goes on with.
  bool HasItsParameters(ShardId server) const {
    return stage_.started() || stage_.closed() ||
           servers_.at(server).restored >= start_.generation();
  }
  // Nothing of the job is lost with this server: its shards have standbys, or others have all entries.
  bool CanDoWithout(ShardId server) const;
  // The server was asked to end and may: nobody goes by it any more. Where its parameters are nowhere else the job
  // waits for it, to go back to a checkpoint.
  void LetGo(ShardId server);
  // A standby is ready: the job may begin.
  void OnProtected() { TryStart(); }
  // Tells all servers that the job has ended; `failure` says why it failed, if it did.
  void CloseServers(absl::string_view failure);

  // --- workers ---

  // A first request makes the worker wait; with a member id it keeps the lease. Codes are those of MemberTable.
  absl::StatusOr<const MemberRecord*> Join(const v1::JoinRequest& request, absl::Time now);
  // The request, or that of another member in its place: the job went back while it waited.
  v1::JoinRequest AskedAnew(const v1::JoinRequest& request) const;
  absl::Status Renew(const v1::RenewRequest& request, absl::Time now);
  // The member, which leaves by itself, takes what its codec had held back along.
  void CountLostResidual(MemberId member) { residuals_.OnLost(members_.Find(member)->state); }
  // Ends a live member and plans without it.
  void Remove(MemberId member, MemberState how, absl::string_view why);
  // Drops the records of members that ended long ago and that nobody needs any more, so that neither state nor status
  // grows with every worker that ever came.
  void ForgetEnded(absl::Time now);
  // The member is told which checkpoints are not its to write, once and for all: `number`, or what it was told before,
  // which is returned.
  uint64_t MarkTold(MemberId member, uint64_t number);

  // --- the job ---

  // Ends leases. A lost server is told by failure().
  void Tick(absl::Time now);
  // The job is to end early. Nobody is admitted any more.
  void Drain();
  // Training is over: members that leave now need no plan without them, which is much work where there are thousands.
  void OnTrainingOver();
  // The job begins from start().saved(), or again from there: whoever was a member is none.
  void GoBack();

  // --- its parts ---

  MemberTable& member_table() { return members_; }
  const MemberTable& members() const { return members_; }
  const ServerTable& servers() const { return servers_; }
  // nullptr: the job keeps no standbys.
  ShardOwners* owners() { return owners_ ? &*owners_ : nullptr; }
  const ShardOwners* owners() const { return owners_ ? &*owners_ : nullptr; }
  const JobStage& stage() const { return stage_; }
  const JobDrain& drain() const { return drain_; }
  const Plans& plans() const { return plans_; }
  StartingPoint& start() { return start_; }
  const StartingPoint& start() const { return start_; }
  Admission& admission() { return admission_; }
  ServerLosses& losses() { return losses_; }
  const ServerLosses& losses() const { return losses_; }
  WarmUp& warm_up() { return warm_up_; }
  const ReplicatedSites& sites() const { return sites_; }
  const TrainedHalves& halves() const { return halves_; }
  const JobWaits& waits() const { return waits_; }
  const ServerDirectory& directory() const { return directory_; }
  ServerOutbox& outbox() { return outbox_; }

  // For whom the job waits (JobWaits::OfJob).
  std::vector<std::string> WaitingFor(std::optional<absl::Time> now = std::nullopt) const {
    return waits_.OfJob(now);
  }
  bool started() const { return stage_.started(); }
  // A server is lost, and the job waits for it.
  bool paused() const { return stage_.paused(); }
  bool draining() const { return drain_.wanted(); }
  Generation generation() const { return plans_.generation(); }
  // Members whose last push only some shards have.
  uint64_t partial_pushes() const { return partial_pushes_.count(); }
  // Members that are gone with what their codec had held back.
  uint64_t residuals_lost() const { return residuals_.count(); }

  // --- another process goes on in this one's place ---

  // Grows whenever something changes that others go by, or that nobody would say again.
  uint64_t changes() const;
  void Save(SavedStates* saved, v1::MembershipState* state) const;
  //   kInvalidArgument  it contradicts itself, or is of another job
  absl::Status Load(const v1::MembershipState& state, const SavedStates& saved);
  // No server is connected any more, and all leases begin anew.
  void Reconnect(absl::Time now);
  // All servers, members and hosts are taken to have been heard just now.
  void ExtendLeases(absl::Time now);

 private:
  // Only a shard's leader speaks for it.
  absl::Status CheckLeader(const v1::ServerHello& hello) const;
  // What a server that has just attached has to know; nullopt: nothing yet.
  std::optional<v1::PlanMessage> StateFor(ShardId server) const;
  // A worker that is not known yet asks to take part. Codes are those of JoinCheck.
  absl::StatusOr<MemberId> AddMember(const v1::JoinRequest& request, absl::Time now);
  void TryStart();
  void OnRestored(ShardId server, const v1::RestoreReply& reply, absl::Time now);
  // A server and the worker of its rank are one site: what ends the one ends the other.
  void LoseSite(ShardId server, absl::string_view why);
  void EndServerLeases(absl::Time now);
  void EndMemberLeases(absl::Time now);
  // Somebody goes by this record of a member that has ended.
  bool IsNeeded(const MemberRecord& member, absl::Time now) const;

  const JobFacts& facts_;
  ServerTable servers_;
  MemberTable members_;
  std::optional<ShardOwners> owners_;
  ServerOutbox outbox_;
  ServerDirectory directory_;
  JobStage stage_;
  JobDrain drain_;
  StartingPoint start_;
  StartList start_list_;
  Plans plans_;
  WarmUp warm_up_;
  Admission admission_;
  ServerLosses losses_;
  ReplicatedSites sites_;
  TrainedHalves halves_;
  PartialPushes partial_pushes_;
  LostResiduals residuals_;
  JobWaits waits_;
  uint64_t changes_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_MEMBERS_MEMBERSHIP_H_
