// The whole control plane of a job as one state machine: membership, epochs, evaluations, the
// clock, the end.
//
// Events come in with the time at which they happened; what has to be sent comes out of TakeOutbox
// and TakeReplies. No I/O, no clock, no lock: server/rpc runs it behind a mutex, a simulator as is.
//
// The end of a job:
//   running -> ending   no worker takes part any more, or the job cannot go on; servers are told to
//                       close
//   ending  -> ended    every server has closed and, where the job failed, every worker was told
//                       why; or a lease has passed
#ifndef TESSERA_SERVER_CONTROL_COORDINATOR_H_
#define TESSERA_SERVER_CONTROL_COORDINATOR_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/coordinator.pb.h"
#include "proto/coordinator_state.pb.h"
#include "proto/status.pb.h"
#include "server/control/checkpoints.h"
#include "server/control/epochs.h"
#include "server/control/evaluation.h"
#include "server/control/job_clock.h"
#include "server/control/job_facts.h"
#include "server/control/membership.h"
#include "server/core/core_agreement.h"

namespace tessera {

class Coordinator {
 public:
  // kInvalidArgument: the facts contradict themselves.
  static absl::StatusOr<std::unique_ptr<Coordinator>> Create(JobFacts facts, absl::Time now);
  // The one that was saved, in another process (coordinator_state.cc): it goes on as that one would have.
  //   kInvalidArgument  the state contradicts itself, or is of another job
  static absl::StatusOr<std::unique_ptr<Coordinator>> Load(JobFacts facts,
                                                           const v1::CoordinatorState& state);
  // All of it but `run`, `term`, `changes` and when it was saved, which are of whoever keeps it.
  v1::CoordinatorState Save() const;
  // Grows whenever something changes that others may go by once they hear of it, or that they would not say
  // again: what must be kept before anything is sent. Renewals and counters change it not.
  uint64_t changes() const;
  // After Load, in another process: all connections are gone, and leases begin anew.
  void Reconnect(absl::Time now);

  // --- servers: see Membership ---
  absl::Status Attach(const v1::ServerHello& hello, absl::Time now);
  void Detach(ShardId server, uint64_t life, absl::Time now);
  void OnShardMessage(ShardId server, const v1::ShardMessage& message, absl::Time now);

  // --- workers ---
  // All answer kFailedPrecondition, with the reason, to one that was removed and once the job has
  // ended.
  absl::StatusOr<v1::JoinReply> Join(const v1::JoinRequest& request, absl::Time now);
  absl::StatusOr<v1::RenewReply> Renew(const v1::RenewRequest& request, absl::Time now);
  absl::Status BeginTraining(MemberId member, absl::Time now);
  absl::StatusOr<v1::EpochCut> BeginEpoch(const v1::BeginEpochRequest& request, absl::Time now);
  // OK: the answer comes through TakeReplies, now or later.
  absl::Status Evaluate(const v1::EvaluateRequest& request, absl::Time now);
  // A repeated one is answered with OK.
  absl::Status Leave(const v1::LeaveRequest& request, absl::Time now);

  // A worker's file of a checkpoint (coordinator.proto).
  absl::StatusOr<v1::SavedReply> Saved(const v1::SavedRequest& request, absl::Time now);
  // A checkpoint at the next exchange boundary; its number.
  //   kFailedPrecondition  the job keeps none, or does not train
  absl::StatusOr<uint64_t> Checkpoint(absl::string_view reason, absl::Time now);
  // What became of a task that TakeDiskTasks gave.
  void OnDisk(const DiskTask& task, const absl::Status& status, absl::Time now);

  // --- hosts of shards (coordinator_standbys.cc): see ShardOwners; kFailedPrecondition also where the job
  // keeps no standbys ---
  absl::Status AttachHost(const v1::HostHello& hello, absl::Time now);
  void DetachHost(uint32_t host, uint64_t life, absl::Time now);
  void OnHostMessage(uint32_t host, const v1::HostMessage& message, absl::Time now);
  std::vector<HostOutgoing> TakeHostOutbox();
  // A shard has a new leader that has yet to hear the plan.
  bool IsTakingOver() const;

  // Leases. Call several times per lease.
  void Tick(absl::Time now);
  // Nobody was listening until now: nobody's lease is over because of it.
  void ExtendLeases(absl::Time now);
  // Evaluate soon and end. A job that has not started ends at once; one that goes back to a checkpoint begins again
  // first, if it can within some leases. It has been stopped, unless it is found to have made all its steps.
  void Drain(absl::string_view reason, absl::Time now);
  // End now, without an evaluation. It has been stopped, and its processes end as those of one that has failed.
  void Stop(absl::string_view reason, absl::Time now);
  // End now, as failed: whoever says so knows that it cannot go on.
  void Fail(absl::string_view why, absl::Time now);
  // So, where others may take part than this one knows of: they have a lease to hear it.
  void GiveUp(absl::string_view why, absl::Time now);

  struct EvaluateAnswer {
    MemberId member;
    absl::StatusOr<v1::EvaluateReply> reply;
  };
  std::vector<Outgoing> TakeOutbox();
  std::vector<EvaluateAnswer> TakeReplies();
  // In order. Empty where the job keeps no checkpoints.
  std::vector<DiskTask> TakeDiskTasks();

  // --- views ---
  v1::JobStatus Status(absl::Time now) const;
  bool ended() const { return phase_ == Phase::kEnded; }
  // Once it is ending: OK, or why there is no last evaluation.
  const absl::Status& outcome() const { return outcome_; }
  // Once it is ending: "finished", "stopped" or "failed" (proto/status.proto). Empty before.
  std::string OutcomeWord() const;
  const JobFacts& facts() const { return facts_; }
  const Membership& membership() const { return membership_; }
  // Of the coordinators before this one: which changes of earlier terms each went on from.
  const std::vector<v1::TermState>& terms() const { return terms_; }
  // As the status has it: "waiting", "training" and so on; and for whom, if for anybody.
  std::string StateWord() const;
  std::vector<std::string> WaitingFor(std::optional<absl::Time> now = std::nullopt) const;

 private:
  enum class Phase { kRunning, kEnding, kEnded };

  Coordinator(JobFacts facts, absl::Time now);
  absl::Status LoadAll(const v1::CoordinatorState& state, const SavedStates& saved);
  Coordinator(const Coordinator&) = delete;

  // Why no worker may go on; OK while the job runs.
  absl::Status Refusal(MemberId member);
  absl::StatusOr<const MemberRecord*> Admitted(MemberId member, absl::Time now);
  // After every event: what follows from it.
  void Settle(absl::Time now);
  // It has made all its steps.
  bool HasTrained(const MemberRecord& member) const;
  bool HasTrained(uint64_t step, uint64_t epoch) const;
  // Where workers train different layers: why the job cannot go on without those who are gone; nullopt: it can, or
  // may be about to end.
  std::optional<std::string> LacksHalf(absl::Time now);
  // Training has stopped: ends the members that had no part in the last evaluation. They cannot go
  // on alone.
  void RemoveLate();
  bool HasReachedTarget() const;
  void BeginEnd(absl::Status outcome, absl::Time now);
  // What a drain that came while the job went back has led to.
  void FollowDrain(absl::Time now);
  bool awaits_drain() const { return drain_since_ != absl::InfiniteFuture(); }
  // coordinator_checkpoints.cc
  void DriveCheckpoint(absl::Time now);
  SavedJob SaveJob(absl::Time now) const;
  // From the last checkpoint, of this run or of the one before.
  void Restore();
  // Of those that are due at ends of epochs, when the checkpoint was made.
  uint64_t EvaluationsHeld(const Manifest& manifest, bool one_is_due) const;
  void GoBack(absl::string_view why, absl::Time now);
  void BeginCores();
  void FollowLosses(absl::Time now);
  // --- servers that were asked to end (coordinator_leave.cc), in the order in which they asked ---
  struct Leaver {
    uint32_t rank = 0;
    uint64_t life = 0;
    absl::Time since;
    uint64_t checkpoint = 0;  // that it waits for; 0: none
  };
  void OnLeaves(uint32_t rank, absl::Time now);
  // What becomes of the first of them, and then of the next.
  void DriveLeaves(absl::Time now);
  v1::LeaveAnswer Consider(Leaver* leaver, absl::Time now);
  v1::LeaveAnswer AwaitCheckpoint(Leaver* leaver, absl::Time now);
  v1::LeaveAnswer DrainInstead(const Leaver& leaver, absl::string_view why);
  v1::LeaveAnswer LetGo(const Leaver& leaver, absl::string_view lost, absl::Time now);
  void TellLeaver(const Leaver& leaver, const v1::LeaveAnswer& answer);
  uint64_t LifeOf(uint32_t rank) const;
  void FillCheckpoint(absl::Time now, v1::JobStatus* status) const;
  void FillMembers(absl::Time now, v1::JobStatus* status) const;
  void FillServers(absl::Time now, v1::JobStatus* status) const;
  void FillResults(v1::JobStatus* status) const;

  JobFacts facts_;  // constant after construction
  absl::Time created_;
  int64_t started_ns_ = 0;  // as JobOrigin has it
  JobClock clock_;
  Membership membership_;
  Epochs epochs_;
  Evaluation evaluation_;
  std::optional<CoreAgreement> cores_;  // set: servers select cores
  std::vector<Outgoing> core_outbox_;
  Checkpoints checkpoints_;
  uint64_t rollbacks_ = 0;
  std::vector<v1::TermState> terms_;  // of those whose state it goes on from
  Phase phase_ = Phase::kRunning;
  // It is drained as soon as it has begun again; InfiniteFuture: it is not, or is already.
  absl::Time drain_since_ = absl::InfiniteFuture();
  bool removed_late_ = false;
  absl::Status outcome_;
  bool is_stopped_ = false;
  std::string
      stop_reason_;  // of the first drain, too, before it is known whether that comes too late
  absl::Time ending_since_;
  // When half of the layers was found to be nobody's; InfiniteFuture: it is not. Not kept: whoever goes on in this
  // one's place gives the others as long again.
  absl::Time half_missing_since_ = absl::InfiniteFuture();
  bool has_strangers_ = false;
  absl::Time ended_at_;
  // Workers that took part when the job failed and do not know yet.
  std::set<MemberId> untold_;
  // Those that waited to be admitted when training ended, and do not know yet.
  std::set<MemberId> late_;
  std::vector<Leaver> leavers_;
  // Not kept: said again by whoever goes on.
  std::map<uint32_t, std::string> leave_told_;
  std::vector<EvaluateAnswer> refused_;
  uint64_t changes_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_COORDINATOR_H_
