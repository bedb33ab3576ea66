// The whole control plane of a job as one state machine.
//
// Events come in with the time at which they happened; what has to be sent comes out of TakeOutbox
// and TakeReplies. No I/O, no clock, no lock: server/rpc runs it behind a mutex, a simulator as is.
//
// It owns the parts and brings events to them: who takes part (membership.h), epochs, evaluations and the clock,
// checkpoints (checkpoint_driver.h), servers that are asked to end (server_departures.h), when training is over
// (training_end.h) and how the job ends (job_end.h). After every event Settle asks each part what follows.
#ifndef TESSERA_SERVER_CONTROL_COORDINATOR_H_
#define TESSERA_SERVER_CONTROL_COORDINATOR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/coordinator.pb.h"
#include "proto/coordinator_state.pb.h"
#include "proto/status.pb.h"
#include "server/control/checkpoint_driver.h"
#include "server/control/checkpoints.h"
#include "server/control/core_selection.h"
#include "server/control/epochs.h"
#include "server/control/evaluation.h"
#include "server/control/event_log.h"
#include "server/control/event_watch.h"
#include "server/control/job_clock.h"
#include "server/control/job_end.h"
#include "server/control/job_facts.h"
#include "server/control/job_status_view.h"
#include "server/control/members/membership.h"
#include "server/control/server_departures.h"
#include "server/control/training_end.h"

namespace tessera {

// It has more public methods than other classes: one for each event of the protocol, and one for each thing that goes
// out.
class Coordinator {
 public:
  // kInvalidArgument: the facts contradict themselves.
  static absl::StatusOr<std::unique_ptr<Coordinator>> Create(JobFacts facts, absl::Time now);
  // The one that was saved, in another process: it goes on as that one would have.
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
  // Whether a server or a host that says hello has this job: what it says more is looked at only then.
  //   kInvalidArgument     another job or layout; of a host, another rank than there is
  //   kFailedPrecondition  it is a host, and the job keeps no standbys
  absl::Status CheckServer(const v1::ServerHello& hello) const;
  absl::Status CheckHost(const v1::HostHello& hello) const;
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

  // --- hosts of shards: see ShardOwners; kFailedPrecondition also where the job keeps no standbys ---
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
  // End now, as failed: whoever says so knows that the job cannot go on.
  void Fail(absl::string_view why, absl::Time now);
  // Fail, where others may take part than this coordinator knows of: they have a lease to hear it.
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
  // What has happened, as far as it is kept.
  const EventLog& events() const { return events_; }
  bool ended() const { return end_.ended(); }
  // Once it is ending: OK, or why there is no last evaluation.
  const absl::Status& outcome() const { return end_.outcome(); }
  // Once it is ending: "finished", "stopped" or "failed" (proto/status.proto). Empty before.
  std::string OutcomeWord() const { return end_.OutcomeWord(); }
  const JobFacts& facts() const { return facts_; }
  const Membership& membership() const { return membership_; }
  // Which changes of earlier terms each coordinator before this one went on from.
  const std::vector<v1::TermState>& terms() const { return terms_; }
  // The status's word for the state: "waiting", "training" and so on; and for whom the job waits, if for anybody.
  std::string StateWord() const;
  std::vector<std::string> WaitingFor(std::optional<absl::Time> now = std::nullopt) const;

 private:
  Coordinator(JobFacts facts, absl::Time now);
  absl::Status LoadAll(const v1::CoordinatorState& state, const SavedStates& saved);
  Coordinator(const Coordinator&) = delete;

  // The record of a member that is admitted and keeps its lease. Errors are those of Refusal and Touch.
  absl::StatusOr<const MemberRecord*> Admitted(MemberId member, absl::Time now);
  v1::JoinReply AdmittedReply(const MemberRecord& member);
  // Where each server is reached, by rank; empty where none has come.
  std::vector<std::string> ServerAddresses() const;
  // Where each server process is reached whose disk has checkpoints, by rank, whichever shards it leads; empty where
  // it is away.
  std::vector<std::string> DiskAddresses() const;
  // After every event: what follows from it, and what is to be told of it.
  void Settle(absl::Time now);
  void Follow(absl::Time now);
  void NoteEvents(absl::Time now) { event_watch_.Look(SecondsAt(now), &events_); }
  // Seconds since the job was first started.
  double SecondsAt(absl::Time now) const { return absl::ToDoubleSeconds(now - created_); }
  void BeginEnd(absl::Status outcome, absl::Time now);
  void GoBack(absl::string_view why, absl::Time now);

  JobFacts
      facts_;  // constant after construction, but for what a state that is loaded says of `restored`
  absl::Time created_;
  int64_t started_ns_ = 0;  // JobOrigin's
  JobClock clock_;
  Membership membership_;
  Epochs epochs_;
  Evaluation evaluation_;
  CoreSelection cores_;
  Checkpoints checkpoints_;
  CheckpointDriver checkpoint_driver_;
  JobEnd end_;
  TrainingEnd training_end_;
  ServerDepartures departures_;
  JobStatusView status_;
  EventLog events_;
  EventWatch event_watch_;
  std::vector<v1::TermState> terms_;  // of the coordinators whose state this one goes on from
  std::vector<EvaluateAnswer> refused_;
  uint64_t changes_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_COORDINATOR_H_
