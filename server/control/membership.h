// Who takes part, and from which exchange on: the plans that all servers count by.
//
// Start      all servers attached, ranks 0 .. workers-1 joined
//            -> plan 1 -> all servers applied it -> those workers are admitted at exchange 1.
// Late join  propose an exchange to all servers (agreement.h) -> all agree -> plan with the member
//            -> all applied it -> admitted. One at a time; others queue.
// Removal    a plan without the member, at once. An open proposal stays open: only its withdrawal,
//            or a plan that adds its member, settles it.
// New parts  where their sizes go by speed: propose an exchange -> all agree -> plan with the sizes
//            from then on.
// Drain      propose an exchange as for a joiner -> all agree -> tell every worker to stop after it
//            -> all have heard -> withdraw, and all stop at the same place.
//
// Checkpoint propose an exchange as for a joiner -> all agree -> order -> withdraw.
// Leave      where a server is to end without a standby, the order of its checkpoint comes with a proposal of the
//            exchange after that, which stays open: nothing is done that would have to be done again.
//
// A lost server's parameters are gone: the job fails, unless it can go back to a checkpoint
// (membership_restore.cc):
// Restore    all servers attached -> told to read the checkpoint -> all have -> as at the start, with the
//            exchange after the checkpoint's.
// Where servers are replicas the others go on:
// Lost server   it and the worker beside it are removed, and nobody pushes to it any more.
// New server    workers are told to push to it -> it copies a replica (server/shard/replica_copying.h) -> a
//               worker of its rank may join.
#ifndef TESSERA_SERVER_CONTROL_MEMBERSHIP_H_
#define TESSERA_SERVER_CONTROL_MEMBERSHIP_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "proto/coordinator.pb.h"
#include "server/control/agreement.h"
#include "server/control/exchange_steps.h"
#include "server/control/job_facts.h"
#include "server/control/member_table.h"
#include "server/control/parts.h"
#include "server/control/saved_job.h"
#include "server/control/saved_states.h"
#include "server/control/server_table.h"
#include "server/control/shard_owners.h"
#include "server/control/start_list.h"

namespace tessera {

// A message for one server. Messages to the same server are delivered in this order, or lost with
// its connection; a server that comes back is sent all it needs.
struct Outgoing {
  ShardId server;
  v1::PlanMessage message;
};

// Pure: events and the time come in, messages and states come out.
class Membership {
 public:
  explicit Membership(const JobFacts& facts);

  // --- servers ---

  // Codes as in ServerTable::Attach. A server that comes back gets the plan and the open proposal.
  absl::Status Attach(const v1::ServerHello& hello, absl::Time now);
  void Detach(ShardId server, uint64_t life, absl::Time now);
  // `server` is attached.
  void OnShardMessage(ShardId server, const v1::ShardMessage& message, absl::Time now);

  // --- workers ---

  // A first request makes the worker wait; with a member id it keeps the lease. Codes as in
  // MemberTable.
  absl::StatusOr<const MemberRecord*> Join(const v1::JoinRequest& request, absl::Time now);
  absl::Status Renew(const v1::RenewRequest& request, absl::Time now);
  // It begins to train at `step`.
  void OnBegins(MemberId member, uint64_t step);
  // Where servers are replicas: for whom this member, which trained alone until now, stands until they have
  // begun ("worker 1"). Not for those whom nobody can admit yet.
  std::vector<std::string> EndWarmUp(MemberId member);
  absl::Status Touch(MemberId member, absl::Time now) { return members_.Touch(member, now); }
  void OnProgress(MemberId member, const v1::Progress& progress, absl::Time now) {
    members_.OnProgress(member, progress, now);
  }
  // The member, which leaves by itself, takes what its codec had held back along.
  void CountLostResidual(MemberId member);
  // Ends a live member and plans without it.
  void Remove(MemberId member, MemberState how, absl::string_view why);
  // Training is over: members that leave now need no plan without them, which is much work where
  // there are thousands.
  void OnTrainingOver();
  void SetReport(MemberId member, const v1::WorkerReport& report) {
    members_.SetReport(member, report);
  }

  // Drops the records of members that ended long ago and that nobody needs any more (membership_forget.cc).
  void ForgetEnded(absl::Time now);

  // Ends leases. A lost server is told by failure().
  void Tick(absl::Time now);
  // The request, or that of another member in its place: the job went back while it waited.
  v1::JoinRequest AskedAnew(const v1::JoinRequest& request) const;
  // The job is to end early. Nobody is admitted any more.
  void Drain();
  // --- checkpoints ---

  // All servers are to promise an exchange, `first` or a later one: agreed_checkpoint() says which.
  void ProposeCheckpoint(Exchange first);
  const std::optional<Exchange>& agreed_checkpoint() const { return agreed_checkpoint_; }
  // Tells all servers, and those that connect anew; ends the promise. `holds`: nothing of the exchange after that is
  // folded until EndHold, or until the job goes back.
  void OrderCheckpoint(const v1::CheckpointOrder& order, bool holds);
  void EndHold();
  // The order, or the proposal of one, is void.
  void DropCheckpoint();
  // What it says of its parameters counts: it has those that the job begins or goes on with.
  bool HasItsParameters(ShardId server) const {
    return started_ || closed_ || servers_.at(server).restored >= restore_generation_;
  }
  // Where the job goes back to when a server is lost; nullptr: nowhere. From the start on: what it begins
  // from.
  void SetSaved(std::shared_ptr<const SavedState> saved) {
    saved_ = std::move(saved);
    ++changes_;
  }
  // Begins from saved_, or again from there: whoever was a member is none.
  void GoBack();
  // Rows that the member has trained on since the job began or went back, and those of all members before that.
  uint64_t ExamplesOf(const MemberRecord& member) const;
  uint64_t examples_before() const;
  // The furthest that is known to be in the parameters, or under way: in lockstep no word of one member alone.
  Exchange ReachedExchange() const;
  // Nothing of the job is lost with this server: its shards have standbys, or others have all entries.
  bool CanDoWithout(ShardId server) const;
  bool CanGoBack() const {
    return saved_ != nullptr && !training_over_ && !drain_wanted_ && !closed_;
  }
  // The server was asked to end and may: nobody goes by it any more. Where its parameters are nowhere else the job
  // waits for it, to go back to a checkpoint.
  void LetGo(ShardId server);
  void Tell(ShardId server, v1::PlanMessage message) {
    outbox_.push_back({server, std::move(message)});
  }
  // A server is lost, and the job waits for it.
  bool paused() const { return paused_; }
  // The member is told which checkpoints are not its to write, once and for all: `number`, or what it was
  // told before, which is returned.
  uint64_t MarkTold(MemberId member, uint64_t number);
  // The plan of those that begin together.
  Generation first_plan() const { return first_plan_; }
  // The checkpoint that the members begin from; nullptr: none.
  const SavedState* begun_from() const { return begun_from_.get(); }
  // Of its manifest.
  uint64_t begun_from_sum() const { return begun_from_sum_; }
  // Of all members; where they advance on their own, of whoever was furthest behind where the job goes on from.
  ExchangeSteps exchange_steps() const;

  // --- standbys (standbys.cc) ---

  // nullptr: the job keeps none.
  ShardOwners* owners() { return owners_ ? &*owners_ : nullptr; }
  const ShardOwners* owners() const { return owners_ ? &*owners_ : nullptr; }
  // False: whoever speaks for the shard was given up, and has yet to hear of it.
  bool Hears(ShardId shard) const {
    return (!owners_ || servers_.at(shard).attached) && !servers_.at(shard).left;
  }
  // Does what follows from lost leaders. Those of shards that were taken over are what it returns.
  std::vector<ShardId> FollowLosses(absl::Time now);
  // A standby is ready: the job may begin.
  void OnProtected() { TryStart(); }

  // Tells all servers that the job has ended; `failure` says why it failed, if it did.
  void CloseServers(absl::string_view failure);

  // For whom this member waits ("server 1", "worker 0"). Empty once it is admitted.
  std::vector<std::string> WaitingFor(const MemberRecord& member) const;
  // For whom the job waits: before the start as above, then whose pushes the shards wait for; and before all these
  // servers that are known to be cut off. `now`: since when and for how long is said, too.
  std::vector<std::string> WaitingFor(std::optional<absl::Time> now = std::nullopt) const;
  // All workers that this one must not overtake have heard: 0 until the drain's exchange is agreed.
  Exchange drain_exchange() const { return drain_exchange_; }
  bool draining() const { return drain_wanted_; }
  // It is where all members stop.
  bool HasDrained(const MemberRecord& member) const {
    return drain_released_ && Exchange(member.progress.exchange()) >= drain_exchange_;
  }
  bool started() const { return started_; }
  // Set once the job cannot go on.
  const std::optional<std::string>& failure() const { return failure_; }

  const MemberTable& members() const { return members_; }
  const Parts& parts() const { return parts_; }
  const ServerTable& servers() const { return servers_; }
  Generation generation() const { return generation_; }
  // A live member that the job need not end without: not one that waits for a replica beside it which
  // nobody has started, or which nobody is left to bring up to date.
  bool MayBegin(const MemberRecord& member) const;
  // The last member of a plan that ended did so of its own accord.
  bool last_left() const { return last_left_; }
  // Where servers are replicas: those to push to.
  v1::ServerList ServerListText() const;
  // --- workers train different layers (layer_workers.cc) ---

  // Those that the servers count, and where they are.
  v1::WorkerList WorkerListText() const;
  // It is gone, and is in that list: `least` is the step of those that are furthest behind.
  bool IsFormerWorker(const MemberRecord& member, uint64_t least) const;
  struct MissingHalf {
    // In words: whose it was, and that the job is to be started again.
    std::string why;
    // The last one left of its own accord.
    bool left = false;
  };
  // Of the layers, while others train the other half; nullopt: none.
  std::optional<MissingHalf> FindMissingHalf() const;

  uint64_t server_list_generation() const { return server_list_generation_; }
  // Members whose last push only some shards have. A shard that is taken over may have lost it meanwhile.
  uint64_t partial_pushes() const;
  // Members that are gone with what their codec had held back.
  uint64_t residuals_lost() const { return residuals_lost_; }

  std::vector<Outgoing> TakeOutbox();

  // --- another process goes on in this one's place (membership_state.cc) ---

  // Grows whenever something changes that others go by, or that nobody would say again.
  uint64_t changes() const {
    return changes_ + members_.changes() + servers_.changes() + (owners_ ? owners_->changes() : 0);
  }
  void Save(SavedStates* saved, v1::MembershipState* state) const;
  //   kInvalidArgument  it contradicts itself, or is of another job
  absl::Status Load(const v1::MembershipState& state, const SavedStates& saved);
  // No server is connected any more, and all leases begin anew.
  void Reconnect(absl::Time now);
  // As if all had been heard just now.
  void ExtendLeases(absl::Time now);

 private:
  struct OpenProposal {
    // Nobody: the drain's, or that of the round from which former sites are none, or parts are of
    // other sizes.
    MemberId joiner;
    bool recut = false;
    std::optional<Parts::Shares> shares;  // of the recut
    Agreement agreement;
    bool checkpoint = false;
    bool hold = false;
  };

  void OnAgreement(Agreement::Outcome outcome);
  // Somebody goes by this record of one that has ended.
  bool IsNeeded(const MemberRecord& member, absl::Time now) const;
  // Replicas.
  void LoseServer(ShardId server, absl::string_view why);
  bool IsWarmingUp() const;
  std::vector<std::string> YetToBegin(MemberId but) const;
  // Every server that awaits a copy is told of whom.
  void OrderCopies();
  std::optional<ShardId> DonorFor(ShardId server) const;
  // That of a server that has no worker.
  std::optional<uint32_t> RankBeside() const;
  // What it has yet to say of removed members it never will.
  void CountPartialPushesWithout(ShardId server);

  void TryStart();
  // Of a job that goes back: no more than this is waited for its members.
  void LimitRejoining(absl::Time now);
  absl::Status CheckLeader(const v1::ServerHello& hello) const;
  // A new plan goes out; `settled`, if not 0, is the proposal that it answers.
  void SendPlan(uint64_t settled);
  void SendProposal(uint64_t replaced);
  v1::PlanMessage PlanText() const;
  v1::Proposal ProposalText() const;
  void SendToAll(const v1::PlanMessage& message);
  // Nobody is to go by the open proposal any more; `message` says so, and perhaps more.
  void WithdrawOpen(v1::PlanMessage message = {});
  void Settle();
  // Former sites end with the agreed round, which nobody has opened yet, and parts are those of the
  // members in the plan.
  void BeginSites(Exchange agreed, const std::optional<Parts::Shares>& shares);
  // By rank, while the job runs.
  std::set<uint32_t> WaitedForByServers() const;
  // Servers and hosts that are cut off, in words.
  std::vector<std::string> CutOff(std::optional<absl::Time> now) const;
  bool AwaitsRecut() const;
  void AdmitPlanned();
  void ProposeNext();
  void ReleaseDrain();
  v1::RestoreOrder RestoreText() const;
  void BeginMember(MemberRecord* member) const;
  void OnRestored(ShardId server, const v1::RestoreReply& reply, absl::Time now);
  // A server that was silent too long.
  void OnServerSilent(ShardId server, absl::Time now);
  void OnServerLost(ShardId server, absl::string_view why);
  // The job is to end, and nobody waits for lost servers any more.
  void EndPause();
  // One that the job waits for was only silent: it has all that it had.
  void OnServerBack(ShardId server);
  void OnRemoved(const v1::PlanApplied::Removed& removed, ShardId server);
  void LogPartialPush(const MemberRecord& member) const;
  // Of a job that begins from a checkpoint again: what was held back there is taken up by those who have
  // come.
  void CountResiduals();
  // Of those that were members when it went back, who has not come is lost.
  void CountMissed();

  const JobFacts& facts_;
  ServerTable servers_;
  MemberTable members_;
  Parts parts_;
  std::optional<ShardOwners> owners_;
  bool started_ = false;
  bool closed_ = false;
  std::string closed_failure_;
  Generation generation_;
  uint64_t last_proposal_ = 0;
  std::optional<OpenProposal> open_;
  bool training_over_ = false;
  bool last_left_ = false;
  bool drain_wanted_ = false;
  bool drain_agreed_ = false;
  bool drain_released_ = false;
  Exchange drain_exchange_;
  Exchange sites_begin_;         // the last one that was agreed on for sites or parts
  uint64_t partial_pushes_ = 0;  // before the job went back
  uint64_t residuals_lost_ = 0;
  uint64_t server_list_generation_ = 1;
  std::optional<Exchange> checkpoint_first_;  // to be proposed
  std::optional<Exchange> agreed_checkpoint_;
  std::optional<v1::CheckpointOrder> checkpoint_order_;
  std::shared_ptr<const SavedState> saved_;
  std::shared_ptr<const SavedState> begun_from_;
  uint64_t begun_from_sum_ = 0;
  Generation first_plan_;
  Generation restore_generation_;  // 0: nothing is to be restored
  StartList start_list_;
  bool paused_ = false;
  std::optional<std::string> failure_;
  std::vector<Outgoing> outbox_;
  uint64_t changes_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_MEMBERSHIP_H_
