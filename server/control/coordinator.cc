#include "server/control/coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "server/control/digest_check.h"
#include "server/control/members/member_pace.h"
#include "server/control/progress_limits.h"
#include "server/control/report.h"

namespace tessera {
namespace {

// The format of CoordinatorState that is written and read.
constexpr uint32_t kFormat = 1;

}  // namespace

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::Create(JobFacts facts, absl::Time now) {
  TESSERA_RETURN_IF_ERROR(CheckFacts(facts));
  if (facts.restored != nullptr) {
    TESSERA_RETURN_IF_ERROR(CheckBatchSize(*facts.restored, facts));
  }
  return absl::WrapUnique(new Coordinator(std::move(facts), now));
}

Coordinator::Coordinator(JobFacts facts, absl::Time now)
    : facts_(std::move(facts)),
      created_(now),
      started_ns_(facts_.origin.started_ns()),
      membership_(facts_),
      epochs_(facts_),
      evaluation_(facts_, &clock_, &epochs_),
      cores_(facts_),
      checkpoints_(facts_),
      checkpoint_driver_({facts_, clock_, membership_, epochs_, evaluation_, checkpoints_}),
      end_(facts_, membership_.members()),
      training_end_(facts_, epochs_, evaluation_, &membership_, &end_),
      departures_({facts_, epochs_, evaluation_, training_end_, membership_, checkpoints_,
                   checkpoint_driver_, end_}),
      status_(facts_, membership_, epochs_, evaluation_),
      event_watch_({facts_, membership_, evaluation_, checkpoints_, checkpoint_driver_, end_}) {
  if (facts_.restored == nullptr) return;
  checkpoints_.SetLast(facts_.restored);
  clock_.Restore(absl::Seconds(facts_.restored->job.train_seconds));
  checkpoint_driver_.TakeUp();
  // Evaluations of an earlier run are none of this one's.
  event_watch_.Adopt();
}

absl::Status Coordinator::CheckServer(const v1::ServerHello& hello) const {
  return membership_.servers().CheckJob(hello);
}

absl::Status Coordinator::CheckHost(const v1::HostHello& hello) const {
  if (membership_.owners() != nullptr) return membership_.owners()->hosts().CheckJob(hello);
  return absl::FailedPreconditionError(
      "the job keeps no standbys (cluster.replicas: 0); start all with the same job file");
}

absl::Status Coordinator::Attach(const v1::ServerHello& hello, absl::Time now) {
  // Nothing of a stranger's hello may have the job go back, or lose a server.
  TESSERA_RETURN_IF_ERROR(CheckServer(hello));
  // A server that was started again has lost its parameters, and nobody need wait for its lease to end first.
  const bool is_replaced = end_.running() && membership_.started() &&
                           membership_.losses().CanGoBack() &&
                           membership_.servers().IsReplaced(hello);
  if (is_replaced) GoBack(absl::StrCat("server ", hello.rank(), " was started again"), now);
  absl::Status attached = membership_.Attach(hello, now);
  Settle(now);
  return attached;
}

void Coordinator::Detach(ShardId server, uint64_t life, absl::Time now) {
  membership_.Detach(server, life, now);
  Settle(now);
}

void Coordinator::OnShardMessage(ShardId server, const v1::ShardMessage& message, absl::Time now) {
  // The connection of one that was given up may still stand.
  if (!membership_.Hears(server)) return;
  membership_.OnShardMessage(server, message, now);
  if (message.has_part()) checkpoints_.OnPart(server, message.part(), now);
  if (message.leaves()) departures_.OnAsked(static_cast<uint32_t>(server.value()), now);
  if (end_.running() && message.has_core_report() && membership_.HasItsParameters(server)) {
    cores_.OnReport(server, message.core_report());
  }
  Settle(now);
}

absl::StatusOr<const MemberRecord*> Coordinator::Admitted(MemberId member, absl::Time now) {
  TESSERA_RETURN_IF_ERROR(end_.Refusal(member));
  TESSERA_RETURN_IF_ERROR(membership_.member_table().Touch(member, now));
  const MemberRecord* record = membership_.members().Find(member);
  if (record->state != MemberState::kAdmitted) {
    return absl::FailedPreconditionError(
        absl::StrCat("member ", member.value(), ": it is not admitted yet; join first"));
  }
  return record;
}

absl::StatusOr<v1::JoinReply> Coordinator::Join(const v1::JoinRequest& first, absl::Time now) {
  const v1::JoinRequest request = membership_.AskedAnew(first);
  if (end_.TellLate(MemberId(request.member()))) {
    const absl::Status told = membership_.member_table().Touch(MemberId(request.member()), now);
    Settle(now);
    return told;
  }
  TESSERA_RETURN_IF_ERROR(end_.Refusal(MemberId(request.member())));
  if (evaluation_.stop() && request.member() == 0) {
    return absl::FailedPreconditionError("join: the job is ending");
  }
  auto joined = membership_.Join(request, now);
  Settle(now);
  TESSERA_RETURN_IF_ERROR(joined.status());
  const MemberRecord& member = **joined;
  v1::JoinReply reply;
  if (!facts_.synchronous && evaluation_.standing() && !evaluation_.Takes(member)) {
    // It would train on, and the others would no longer score the model that the first of them reads.
    reply.add_waiting_for("the evaluation to end");
  } else if (member.state == MemberState::kAdmitted) {
    reply = AdmittedReply(member);
  } else {
    for (std::string& name : membership_.waits().OfMember(member)) {
      reply.add_waiting_for(std::move(name));
    }
  }
  reply.set_member(member.member.value());
  reply.set_rank(member.rank.value());
  reply.set_lease_timeout_ns(absl::ToInt64Nanoseconds(facts_.lease_timeout));
  reply.set_layout_hash(facts_.layout_hash);
  return reply;
}

v1::JoinReply Coordinator::AdmittedReply(const MemberRecord& member) {
  v1::JoinReply reply;
  reply.set_admitted(true);
  // A worker reads its file of whoever has it; who leads the shards is in the list.
  for (std::string& address : facts_.own_disks ? DiskAddresses() : ServerAddresses()) {
    *reply.add_servers() = std::move(address);
  }
  if (facts_.replicated || facts_.standbys) {
    *reply.mutable_server_list() = membership_.directory().Text();
  }
  if (facts_.front_workers > 0) {
    *reply.mutable_worker_list() = membership_.halves().WorkerListText();
  }
  reply.set_first_exchange(member.first_exchange.value());
  // Others may have gone on for epochs since its first exchange was agreed on.
  uint64_t first_step = std::max(member.first_step, epochs_.FirstStep());
  // Its first exchange would come after the last one, which may be shorter.
  const bool is_past_end =
      facts_.epochs > 0 && epochs_.EpochOf(first_step) >= static_cast<uint64_t>(facts_.epochs);
  if (is_past_end) first_step = std::min(first_step, epochs_.EndStep());
  reply.set_first_step(first_step);
  reply.set_generation(membership_.generation().value());
  reply.set_epoch(epochs_.EpochOf(first_step));
  const SavedState* const saved =
      member.planned_in == membership_.plans().first() ? membership_.start().begun_from() : nullptr;
  if (!facts_.synchronous && facts_.evaluate_every > 0 && saved == nullptr) {
    reply.set_evaluation_due(reply.epoch() / facts_.evaluate_every > evaluation_.held());
  }
  // In lockstep the exchange tells; elsewhere those that were ordered before are not this member's.
  reply.set_checkpoint_number(
      membership_.MarkTold(member.member, facts_.synchronous ? 0 : checkpoints_.last_ordered()));
  if (saved != nullptr) {
    reply.mutable_resume()->set_step(saved->manifest.step);
    reply.mutable_resume()->set_from_restore(saved->from_restore);
    reply.mutable_resume()->set_evaluation_due(saved->job.evaluation_due);
    reply.mutable_resume()->set_manifest_sum(membership_.start().begun_from_sum());
  }
  return reply;
}

absl::StatusOr<v1::RenewReply> Coordinator::Renew(const v1::RenewRequest& request, absl::Time now) {
  const MemberId member(request.member());
  TESSERA_RETURN_IF_ERROR(end_.Refusal(member));
  const MemberRecord* record = membership_.members().Find(member);
  // Its lease is not renewed: the member is none, and its worker joins as another one.
  if (record != nullptr && MayRejoin(record->state)) {
    v1::RenewReply reply;
    reply.set_rejoin(true);
    return reply;
  }
  TESSERA_RETURN_IF_ERROR(CheckProgress("renew", request.progress()));
  absl::Status renewed = membership_.Renew(request, now);
  Settle(now);
  TESSERA_RETURN_IF_ERROR(renewed);
  v1::RenewReply reply;
  for (std::string& name : WaitingFor(now)) reply.add_waiting_for(std::move(name));
  reply.set_drain_exchange(membership_.drain().exchange().value());
  reply.set_paused(membership_.paused());
  if (facts_.step_budgets) {
    reply.set_step_budget(StepBudget(membership_.members(), member, facts_.local_steps));
  }
  if ((facts_.replicated || facts_.standbys) &&
      request.servers_known() != membership_.directory().generation()) {
    *reply.mutable_server_list() = membership_.directory().Text();
  }
  if (facts_.front_workers > 0 && request.workers_known() != membership_.generation().value()) {
    *reply.mutable_worker_list() = membership_.halves().WorkerListText();
  }
  if (request.ends_warm_up()) {
    for (std::string& name : membership_.warm_up().End(member)) {
      reply.add_begin_first(std::move(name));
    }
  }
  return reply;
}

absl::Status Coordinator::BeginTraining(MemberId member, absl::Time now) {
  TESSERA_RETURN_IF_ERROR(Admitted(member, now).status());
  changes_ += clock_.running() ? 0 : 1;
  clock_.Start(now);
  if (!evaluation_.standing()) clock_.Resume(now);  // The job went back to a checkpoint.
  return absl::OkStatus();
}

absl::StatusOr<v1::EpochCut> Coordinator::BeginEpoch(const v1::BeginEpochRequest& request,
                                                     absl::Time now) {
  TESSERA_RETURN_IF_ERROR(CheckStep("begin epoch", request.step()));
  TESSERA_ASSIGN_OR_RETURN(const MemberRecord* member, Admitted(MemberId(request.member()), now));
  absl::StatusOr<v1::EpochCut> cut =
      epochs_.Begin(*member, request.epoch(), request.step(), membership_.members(),
                    checkpoints_.order().has_value());
  if (cut.ok()) membership_.warm_up().OnBegins(member->member, request.step());
  if (!absl::IsFailedPrecondition(cut.status())) return cut;
  // Too few rows for all of them. Nobody can begin, so it must not cost whoever asks first its
  // place.
  Fail(cut.status().message(), now);
  return end_.Refusal(member->member);
}

absl::Status Coordinator::Evaluate(const v1::EvaluateRequest& request, absl::Time now) {
  const MemberId member(request.member());
  TESSERA_RETURN_IF_ERROR(CheckProgress("evaluate", request.progress()));
  TESSERA_RETURN_IF_ERROR(Admitted(member, now).status());
  if (request.stage() == v1::ARRIVE) {
    membership_.member_table().Find(member)->OnProgress(request.progress(), now);
  }
  absl::Status asked =
      evaluation_.OnRequest(request, membership_.members(), membership_.draining(), now);
  Settle(now);
  return asked;
}

absl::Status Coordinator::Leave(const v1::LeaveRequest& request, absl::Time now) {
  const MemberId member(request.member());
  MemberTable& members = membership_.member_table();
  const MemberRecord* record = members.Find(member);
  if (members.IsForgotten(member)) return absl::OkStatus();
  if (record == nullptr) {
    return absl::NotFoundError(absl::StrCat("member ", member.value(), ": there is none"));
  }
  // The first report counts: a repeated request may come once the worker has gone on.
  if (request.has_report() && !record->report) members.SetReport(member, request.report());
  end_.OnTold(member);
  if (IsLive(record->state)) {
    TESSERA_RETURN_IF_ERROR(members.Touch(member, now));
    if (request.error().empty()) {
      if (request.residual_lost()) membership_.CountLostResidual(member);
      membership_.Remove(member, MemberState::kLeft,
                         request.was_asked() ? "it was asked to leave" : "finished");
    } else {
      membership_.Remove(member, MemberState::kFailed, request.error());
    }
  }
  Settle(now);
  return absl::OkStatus();
}

absl::StatusOr<v1::SavedReply> Coordinator::Saved(const v1::SavedRequest& request, absl::Time now) {
  TESSERA_RETURN_IF_ERROR(CheckProgress("saved", request.progress()));
  TESSERA_ASSIGN_OR_RETURN(const MemberRecord* member, Admitted(MemberId(request.member()), now));
  v1::SavedReply reply;
  if (request.number() != 0) {
    TESSERA_RETURN_IF_ERROR(
        membership_.start().CheckSavedStep(request.progress().step(), membership_.servers()));
    checkpoints_.OnSaved(*member, request, now);
    Settle(now);
    return reply;
  }
  // One that leaves before the end has nothing to do with the last checkpoint.
  if (!facts_.checkpoints || !evaluation_.stop() || !evaluation_.Takes(*member)) return reply;
  const bool has_begun = checkpoint_driver_.BeginLast(*member, request.writes_again(), now);
  Settle(now);
  if (has_begun && checkpoints_.last_of_all().over()) return reply;
  if (has_begun && checkpoints_.stage() == Checkpoints::Stage::kWriting) {
    *reply.mutable_mark() = checkpoints_.mark();
  } else {
    reply.set_wait(true);
  }
  return reply;
}

absl::StatusOr<uint64_t> Coordinator::Checkpoint(absl::string_view reason, absl::Time now) {
  const auto refuse = [](absl::string_view why) {
    return absl::FailedPreconditionError(absl::StrCat("checkpoint: ", why));
  };
  if (!facts_.checkpoints) {
    return refuse("the job has no checkpoint.directory; it can only be given at the start");
  }
  if (!end_.running() || membership_.draining() || evaluation_.stop()) {
    return refuse("the job is ending");
  }
  if (!membership_.started() || membership_.paused()) return refuse("the job does not train yet");
  Log(LogLevel::kInfo, absl::StrCat("checkpoint: asked for reason=\"", reason, "\""));
  const uint64_t number = checkpoints_.Ask();
  Settle(now);
  return number;
}

void Coordinator::OnDisk(const DiskTask& task, const absl::Status& status, absl::Time now) {
  checkpoint_driver_.OnDisk(task, status, now);
  Settle(now);
}

absl::Status Coordinator::AttachHost(const v1::HostHello& hello, absl::Time now) {
  TESSERA_RETURN_IF_ERROR(CheckHost(hello));
  absl::Status attached = membership_.owners()->Attach(hello, now);
  checkpoint_driver_.FollowLosses(now);
  Settle(now);
  return attached;
}

void Coordinator::DetachHost(uint32_t host, uint64_t life, absl::Time now) {
  if (membership_.owners() == nullptr) return;
  membership_.owners()->Detach(host, life, now);
  NoteEvents(now);
}

void Coordinator::OnHostMessage(uint32_t host, const v1::HostMessage& message, absl::Time now) {
  if (membership_.owners() == nullptr) return;
  membership_.owners()->OnMessage(host, message, now);
  if (message.leaves()) departures_.OnAsked(host, now);
  membership_.OnProtected();
  Settle(now);
}

std::vector<HostOutgoing> Coordinator::TakeHostOutbox() {
  if (membership_.owners() == nullptr) return {};
  return membership_.owners()->TakeOutbox();
}

bool Coordinator::IsTakingOver() const {
  return membership_.owners() != nullptr && membership_.owners()->IsTakingOver();
}

void Coordinator::Tick(absl::Time now) {
  membership_.Tick(now);
  checkpoint_driver_.FollowLosses(now);
  Settle(now);
  if (end_.running()) membership_.ForgetEnded(now);
}

void Coordinator::ExtendLeases(absl::Time now) {
  membership_.ExtendLeases(now);
  training_end_.ExtendLeases(now);
}

void Coordinator::Drain(absl::string_view reason, absl::Time now) {
  if (!end_.running()) return;
  const bool has_gone_back = checkpoint_driver_.rollbacks() > 0;
  if (const auto why = training_end_.Drain(reason, has_gone_back, now)) return Fail(*why, now);
  Settle(now);
}

void Coordinator::Stop(absl::string_view reason, absl::Time now) {
  if (!end_.running()) return;
  end_.SetStopped(true);
  end_.SetStopReason(reason, /*replaces=*/true);
  Fail(absl::StrCat("stopped: ", reason.empty() ? "no reason given" : reason), now);
}

void Coordinator::GiveUp(absl::string_view why, absl::Time now) {
  end_.SetHasStrangers();
  Fail(why, now);
}

// Workers that wait for an evaluation wait for all others, who may never come now: they are answered first.
void Coordinator::Fail(absl::string_view why, absl::Time now) {
  if (!end_.running()) return;
  Log(LogLevel::kError, absl::StrCat("control: job ", end_.is_stopped() ? "stopped" : "failed",
                                     " why=\"", why, "\""));
  for (const auto& [id, record] : membership_.members().all()) {
    if (!evaluation_.IsParked(record)) continue;
    refused_.push_back(
        {id, absl::FailedPreconditionError(absl::StrCat("the job has failed: ", why))});
  }
  BeginEnd(absl::AbortedError(why), now);
}

void Coordinator::BeginEnd(absl::Status outcome, absl::Time now) {
  end_.Begin(std::move(outcome), now);
  clock_.End(now);
  membership_.CloseServers(end_.outcome().message());
  Settle(now);
}

void Coordinator::GoBack(absl::string_view why, absl::Time now) {
  checkpoint_driver_.GoBack(why, now);
  cores_.Begin();
  membership_.GoBack();
}

void Coordinator::Settle(absl::Time now) {
  Follow(now);
  NoteEvents(now);
}

void Coordinator::Follow(absl::Time now) {
  if (end_.running()) {
    std::optional<std::string> why = membership_.stage().failure();
    if (!why && training_end_.awaits_drain()) {
      const SavedState* const last = checkpoints_.last().get();
      why = training_end_.FollowDrain(WaitingFor(), last != nullptr ? last->manifest.step : 0, now);
    }
    if (why) return Fail(*why, now);
  }
  departures_.Drive(now);
  if (facts_.checkpoints && end_.running() && membership_.started() && !membership_.paused()) {
    checkpoint_driver_.Drive(departures_.awaited_checkpoint(), now);
  }
  evaluation_.OnPlans(membership_.servers().AppliedByAll() >= membership_.generation(), now);
  evaluation_.OnMembers(membership_.members(), now);
  training_end_.RemoveLate();
  if (!end_.running()) {
    return end_.Conclude(/*servers_closed=*/membership_.servers().AllClosed(), now);
  }
  const std::optional<absl::Status> outcome = training_end_.Decide(now);
  if (!outcome) return;
  if (!outcome->ok()) return Fail(outcome->message(), now);
  BeginEnd(absl::OkStatus(), now);
}

std::vector<std::string> Coordinator::ServerAddresses() const {
  std::vector<std::string> addresses;
  for (int i = 0; i < facts_.servers; ++i) {
    addresses.push_back(membership_.servers().at(ShardId(i)).address);
  }
  return addresses;
}

std::vector<std::string> Coordinator::DiskAddresses() const {
  if (membership_.owners() == nullptr) return ServerAddresses();
  const ShardHosts& hosts = membership_.owners()->hosts();
  std::vector<std::string> addresses(hosts.count());
  for (uint32_t rank = 0; rank < hosts.count(); ++rank) {
    if (hosts.IsHere(rank)) addresses[rank] = hosts.at(rank).address;
  }
  return addresses;
}

std::vector<DiskTask> Coordinator::TakeDiskTasks() {
  std::vector<DiskTask> tasks = checkpoints_.TakeTasks();
  // Where the servers are when the task is done, not when it was thought of.
  for (DiskTask& task : tasks) task.servers = DiskAddresses();
  return tasks;
}

std::vector<Outgoing> Coordinator::TakeOutbox() {
  std::vector<Outgoing> outbox = membership_.outbox().Take();
  cores_.TakeQuestions(&outbox);
  // Whoever writes or reads a checkpoint may send files to others, or want theirs.
  for (Outgoing& outgoing : outbox) {
    v1::PlanMessage& message = outgoing.message;
    if (!message.has_checkpoint() && !message.has_restore()) continue;
    for (std::string& address : DiskAddresses()) *message.add_servers() = std::move(address);
  }
  return outbox;
}

std::vector<Coordinator::EvaluateAnswer> Coordinator::TakeReplies() {
  std::vector<EvaluateAnswer> answers = std::exchange(refused_, {});
  for (const EvaluateAnswer& answer : answers) end_.OnTold(answer.member);
  for (Evaluation::Reply& reply : evaluation_.TakeReplies()) {
    if (reply.removed) {
      const MemberRecord* const member = membership_.members().Find(reply.member);
      answers.push_back({reply.member, absl::FailedPreconditionError(absl::StrCat(
                                           "worker ", member != nullptr ? member->rank.value() : 0,
                                           " is no longer a member: ",
                                           member != nullptr ? member->ended : "it ended"))});
    } else {
      answers.push_back({reply.member, std::move(reply.reply)});
    }
  }
  return answers;
}

std::string Coordinator::StateWord() const {
  if (end_.ended()) return "done";
  if (end_.ending() || membership_.draining() || training_end_.awaits_drain()) return "draining";
  if (membership_.paused()) return "waiting";
  if (evaluation_.standing()) return "evaluating";
  const auto& counted = membership_.members().Counted();
  const bool running = std::any_of(counted.begin(), counted.end(), [](const MemberRecord* member) {
    return member->state == MemberState::kAdmitted;
  });
  return running ? "training" : "waiting";
}

// Where members advance on their own, the servers may wait for nobody while an evaluation does.
std::vector<std::string> Coordinator::WaitingFor(std::optional<absl::Time> now) const {
  std::vector<std::string> names = membership_.WaitingFor(now);
  // Whoever has yet to come to an evaluation waits for these servers, too.
  if (membership_.paused()) return names;
  const ServerTable& servers = membership_.servers();
  // A server that lacks a push has not begun to select: its report is for that worker to bring.
  if (end_.running() && servers.LeastCommitted() == servers.HighestCommitted()) {
    const std::vector<std::string> selecting = cores_.WaitingFor();
    names.insert(names.begin(), selecting.begin(), selecting.end());
  }
  for (Rank rank : evaluation_.Missing()) {
    if (names.size() >= kWaitNamesMax) break;
    std::string name = absl::StrCat("worker ", rank.value());
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      names.push_back(std::move(name));
    }
  }
  // Training is over, and nobody goes before the last checkpoint is there.
  if (!evaluation_.stop()) return names;
  for (std::string& name : checkpoints_.Missing(membership_.members())) {
    if (names.size() >= kWaitNamesMax) break;
    names.push_back(std::move(name));
  }
  return names;
}

v1::JobStatus Coordinator::Status(absl::Time now) const {
  if (end_.ended()) now = end_.ended_at();
  v1::JobStatus status;
  status_.Fill(now, &status);
  status.set_state(StateWord());
  if (end_.running()) {
    for (std::string& name : WaitingFor(now)) status.add_waiting_for(std::move(name));
  }
  status.set_train_seconds(absl::ToDoubleSeconds(clock_.Trained(now)));
  status.set_wall_seconds(SecondsAt(now));
  // Nobody has said in a simulation where and when the job began.
  if (facts_.origin.started_ns() != 0) {
    *status.mutable_origin() = facts_.origin;
    status.mutable_origin()->set_started_ns(started_ns_);
  }
  checkpoint_driver_.Fill(now, end_.running(), &status);
  if (!outcome().ok()) status.set_failure(std::string(outcome().message()));
  status.set_outcome(OutcomeWord());
  if (end_.is_stopped()) status.set_stop_reason(end_.stop_reason());
  events_.Fill(&status);
  if (end_.ended()) status.set_report_json(ReportJson(status, events_.events()));
  return status;
}

uint64_t Coordinator::changes() const {
  return changes_ + membership_.changes() + epochs_.changes() + evaluation_.changes() +
         cores_.changes() + checkpoints_.changes() + checkpoint_driver_.changes() + end_.changes() +
         training_end_.changes() + departures_.changes() + events_.changes();
}

v1::CoordinatorState Coordinator::Save() const {
  v1::CoordinatorState state;
  SavedStates saved;
  state.set_format(kFormat);
  state.set_job_digest(facts_.digest);
  state.set_job_text(facts_.job_text);
  state.set_started_ns(started_ns_);
  state.set_created(absl::ToUnixNanos(created_));
  state.set_removed_late(membership_.stage().training_over());
  for (const v1::TermState& term : terms_) *state.add_terms() = term;
  *state.mutable_clock() = clock_.Save();
  membership_.Save(&saved, state.mutable_membership());
  *state.mutable_epochs() = epochs_.SaveAll();
  *state.mutable_evaluation() = evaluation_.Save();
  *state.mutable_checkpoints() = checkpoints_.Save(&saved);
  checkpoint_driver_.Save(&state);
  cores_.Save(&state);
  end_.Save(&state);
  training_end_.Save(&state);
  departures_.Save(&state);
  events_.Save(&state);
  state.set_restored(saved.Add(facts_.restored));
  saved.Save(&state);
  return state;
}

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::Load(JobFacts facts,
                                                               const v1::CoordinatorState& state) {
  const auto wrong = [](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("coordinator's state: ", why));
  };
  if (state.format() != kFormat) {
    return wrong(absl::StrCat("format is ", state.format(), ", want ", kFormat));
  }
  TESSERA_RETURN_IF_ERROR(
      CheckDigest("coordinator's state", state.job_digest(), state.job_text(), facts));
  absl::StatusOr<SavedStates> saved = SavedStates::Load(state);
  if (!saved.ok()) return wrong(saved.status().message());
  // What the job began from is in the state, whatever lies in checkpoint.restore by now.
  facts.restored = nullptr;
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<Coordinator> coordinator,
                           Create(std::move(facts), absl::FromUnixNanos(state.created())));
  const absl::Status loaded = coordinator->LoadAll(state, *saved);
  if (!loaded.ok()) return wrong(loaded.message());
  return coordinator;
}

absl::Status Coordinator::LoadAll(const v1::CoordinatorState& state, const SavedStates& saved) {
  TESSERA_RETURN_IF_ERROR(saved.Find(state.restored(), &facts_.restored));
  if (state.started_ns() > 0) started_ns_ = state.started_ns();
  terms_.assign(state.terms().begin(), state.terms().end());
  clock_.Load(state.clock());
  TESSERA_RETURN_IF_ERROR(membership_.Load(state.membership(), saved));
  TESSERA_RETURN_IF_ERROR(end_.Load(state));
  training_end_.Load(state);
  departures_.Load(state);
  TESSERA_RETURN_IF_ERROR(epochs_.Load(state.epochs(), membership_.members()));
  TESSERA_RETURN_IF_ERROR(evaluation_.Load(state.evaluation(), membership_.members()));
  TESSERA_RETURN_IF_ERROR(checkpoints_.Load(state.checkpoints(), saved));
  checkpoints_.SetSteps(membership_.start().steps());
  checkpoint_driver_.Load(state);
  TESSERA_RETURN_IF_ERROR(events_.Load(state));
  TESSERA_RETURN_IF_ERROR(cores_.Load(state));
  event_watch_.Adopt();
  return absl::OkStatus();
}

void Coordinator::Reconnect(absl::Time now) {
  membership_.Reconnect(now);
  evaluation_.Reconnect();
  checkpoints_.Reconnect(now);
  training_end_.Reconnect(now);
  departures_.Reconnect(now);
  // All connections are new ones, which is no event of each server.
  event_watch_.Adopt();
  events_.Add(EventKind::kCoordinatorMoved, SecondsAt(now), "coordinator",
              "another process goes on in its place");
  ++changes_;
  Settle(now);
}

}  // namespace tessera
