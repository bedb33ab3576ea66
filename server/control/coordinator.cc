#include "server/control/coordinator.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "server/control/progress_limits.h"
#include "server/control/report.h"
#include "server/control/traffic_sum.h"
#include "server/core/core_messages.h"

namespace tessera {
namespace {

// Said by name when many are waited for.
constexpr size_t kNamesMax = 16;

v1::Phases PhasesOf(const v1::WorkerReport& report) {
  v1::Phases phases;
  phases.set_compute_seconds(report.compute_seconds());
  phases.set_pull_seconds(report.pull_seconds());
  phases.set_push_seconds(report.push_seconds());
  phases.set_wait_seconds(report.wait_seconds());
  phases.set_evaluate_seconds(report.evaluate_seconds());
  return phases;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::Create(JobFacts facts, absl::Time now) {
  if (facts.servers < 1 || facts.workers < 1) {
    return absl::InvalidArgumentError(absl::StrCat("control: servers are ", facts.servers,
                                                   " and workers ", facts.workers,
                                                   ", want at least 1 of each"));
  }
  if ((facts.epochs > 0) == (facts.steps > 0)) {
    return absl::InvalidArgumentError(absl::StrCat("control: epochs are ", facts.epochs,
                                                   " and steps ", facts.steps,
                                                   ", want exactly one of them above 0"));
  }
  if (facts.batch_size < 1 || facts.local_steps < 1 ||
      facts.lease_timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "control: batch size is ", facts.batch_size, ", local steps ", facts.local_steps,
        ", lease ", absl::FormatDuration(facts.lease_timeout), ", want all above 0"));
  }
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
      checkpoints_(facts_) {
  if (facts_.restored != nullptr) {
    checkpoints_.SetLast(facts_.restored);
    clock_.Restore(absl::Seconds(facts_.restored->job.train_seconds));
    Restore();
  }
  BeginCores();
}

absl::Status Coordinator::Attach(const v1::ServerHello& hello, absl::Time now) {
  const bool is_replaced = phase_ == Phase::kRunning && membership_.started() &&
                           membership_.CanGoBack() && membership_.servers().IsReplaced(hello);
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
  if (!membership_.Hears(server)) return;
  membership_.OnShardMessage(server, message, now);
  if (message.has_part()) checkpoints_.OnPart(server, message.part(), now);
  if (message.leaves()) OnLeaves(static_cast<uint32_t>(server.value()), now);
  const bool selects = cores_ && phase_ == Phase::kRunning;
  if (selects && message.has_core_report() && membership_.HasItsParameters(server)) {
    for (const auto& [to, question] :
         cores_->OnReport(server, FromMessage(message.core_report()))) {
      v1::PlanMessage asked;
      *asked.mutable_core_question() = ToMessage(question);
      core_outbox_.push_back({to, std::move(asked)});
    }
  }
  Settle(now);
}

absl::Status Coordinator::Refusal(MemberId member) {
  if (phase_ == Phase::kRunning) return absl::OkStatus();
  changes_ += untold_.erase(member);
  return absl::FailedPreconditionError(
      outcome_.ok() ? std::string("the job has ended")
                    : absl::StrCat("the job has failed: ", outcome_.message()));
}

absl::StatusOr<const MemberRecord*> Coordinator::Admitted(MemberId member, absl::Time now) {
  TESSERA_RETURN_IF_ERROR(Refusal(member));
  TESSERA_RETURN_IF_ERROR(membership_.Touch(member, now));
  const MemberRecord* record = membership_.members().Find(member);
  if (record->state != MemberState::kAdmitted) {
    return absl::FailedPreconditionError(
        absl::StrCat("member ", member.value(), ": it is not admitted yet; join first"));
  }
  return record;
}

absl::StatusOr<v1::JoinReply> Coordinator::Join(const v1::JoinRequest& first, absl::Time now) {
  const v1::JoinRequest request = membership_.AskedAnew(first);
  if (late_.erase(MemberId(request.member())) > 0) {
    ++changes_;
    const absl::Status told = membership_.Touch(MemberId(request.member()), now);
    Settle(now);
    return told;
  }
  TESSERA_RETURN_IF_ERROR(Refusal(MemberId(request.member())));
  if (evaluation_.stop() && request.member() == 0) {
    return absl::FailedPreconditionError("join: the job is ending");
  }
  auto joined = membership_.Join(request, now);
  Settle(now);
  TESSERA_RETURN_IF_ERROR(joined.status());
  const MemberRecord& member = **joined;
  v1::JoinReply reply;
  reply.set_member(member.member.value());
  reply.set_rank(member.rank.value());
  reply.set_lease_timeout_ns(absl::ToInt64Nanoseconds(facts_.lease_timeout));
  reply.set_layout_hash(facts_.layout_hash);
  if (!facts_.synchronous && evaluation_.standing() && !evaluation_.Takes(member)) {
    // It would train on, and the others would no longer score the model that the first of them reads.
    reply.add_waiting_for("the evaluation to end");
    return reply;
  }
  if (member.state != MemberState::kAdmitted) {
    for (std::string& name : membership_.WaitingFor(member)) {
      reply.add_waiting_for(std::move(name));
    }
    return reply;
  }
  reply.set_admitted(true);
  for (int i = 0; i < facts_.servers; ++i) {
    reply.add_servers(membership_.servers().at(ShardId(i)).address);
  }
  if (facts_.replicated || facts_.standbys) {
    *reply.mutable_server_list() = membership_.ServerListText();
  }
  if (facts_.front_workers > 0) *reply.mutable_worker_list() = membership_.WorkerListText();
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
      member.planned_in == membership_.first_plan() ? membership_.begun_from() : nullptr;
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
    reply.mutable_resume()->set_manifest_sum(membership_.begun_from_sum());
  }
  return reply;
}

absl::StatusOr<v1::RenewReply> Coordinator::Renew(const v1::RenewRequest& request, absl::Time now) {
  TESSERA_RETURN_IF_ERROR(Refusal(MemberId(request.member())));
  const MemberRecord* record = membership_.members().Find(MemberId(request.member()));
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
  reply.set_drain_exchange(membership_.drain_exchange().value());
  reply.set_paused(membership_.paused());
  if (facts_.step_budgets) {
    reply.set_step_budget(membership_.members().StepBudget(MemberId(request.member())));
  }
  if ((facts_.replicated || facts_.standbys) &&
      request.servers_known() != membership_.server_list_generation()) {
    *reply.mutable_server_list() = membership_.ServerListText();
  }
  if (facts_.front_workers > 0 && request.workers_known() != membership_.generation().value()) {
    *reply.mutable_worker_list() = membership_.WorkerListText();
  }
  if (request.ends_warm_up()) {
    for (std::string& name : membership_.EndWarmUp(record->member)) {
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
  if (cut.ok()) membership_.OnBegins(member->member, request.step());
  if (!absl::IsFailedPrecondition(cut.status())) return cut;
  // Too few rows for all of them. Nobody can begin, so it must not cost whoever asks first its
  // place.
  Fail(cut.status().message(), now);
  return Refusal(member->member);
}

absl::Status Coordinator::Evaluate(const v1::EvaluateRequest& request, absl::Time now) {
  const MemberId member(request.member());
  TESSERA_RETURN_IF_ERROR(CheckProgress("evaluate", request.progress()));
  TESSERA_RETURN_IF_ERROR(Admitted(member, now).status());
  if (request.stage() == v1::ARRIVE) membership_.OnProgress(member, request.progress(), now);
  absl::Status asked =
      evaluation_.OnRequest(request, membership_.members(), membership_.draining(), now);
  Settle(now);
  return asked;
}

absl::Status Coordinator::Leave(const v1::LeaveRequest& request, absl::Time now) {
  const MemberId member(request.member());
  const MemberRecord* record = membership_.members().Find(member);
  if (membership_.members().IsForgotten(member)) return absl::OkStatus();
  if (record == nullptr) {
    return absl::NotFoundError(absl::StrCat("member ", member.value(), ": there is none"));
  }
  if (request.has_report() && !record->report) membership_.SetReport(member, request.report());
  untold_.erase(member);
  if (IsLive(record->state)) {
    TESSERA_RETURN_IF_ERROR(membership_.Touch(member, now));
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

void Coordinator::Tick(absl::Time now) {
  membership_.Tick(now);
  FollowLosses(now);
  Settle(now);
  if (phase_ == Phase::kRunning) membership_.ForgetEnded(now);
}

void Coordinator::ExtendLeases(absl::Time now) {
  membership_.ExtendLeases(now);
  if (half_missing_since_ != absl::InfiniteFuture()) half_missing_since_ = now;
  if (awaits_drain()) drain_since_ = now;
}

std::vector<DiskTask> Coordinator::TakeDiskTasks() { return checkpoints_.TakeTasks(); }

std::vector<Outgoing> Coordinator::TakeOutbox() {
  std::vector<Outgoing> outbox = membership_.TakeOutbox();
  for (Outgoing& asked : core_outbox_) outbox.push_back(std::move(asked));
  core_outbox_.clear();
  return outbox;
}

std::vector<Coordinator::EvaluateAnswer> Coordinator::TakeReplies() {
  std::vector<EvaluateAnswer> answers = std::exchange(refused_, {});
  for (const EvaluateAnswer& answer : answers) untold_.erase(answer.member);
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
  if (phase_ == Phase::kEnded) return "done";
  if (phase_ == Phase::kEnding || membership_.draining() || awaits_drain()) return "draining";
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
  const bool can_select = servers.LeastCommitted() == servers.HighestCommitted();
  if (cores_ && phase_ == Phase::kRunning && can_select) {
    std::vector<std::string> selecting;
    for (const ShardId server : cores_->Missing()) {
      selecting.push_back(absl::StrCat("server ", server.value(), " to select the core"));
    }
    names.insert(names.begin(), selecting.begin(), selecting.end());
  }
  for (Rank rank : evaluation_.Missing()) {
    if (names.size() >= kNamesMax) break;
    std::string name = absl::StrCat("worker ", rank.value());
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      names.push_back(std::move(name));
    }
  }
  // Training is over, and nobody goes before the last checkpoint is there.
  if (!evaluation_.stop()) return names;
  for (std::string& name : checkpoints_.Missing(membership_.members())) {
    if (names.size() >= kNamesMax) break;
    names.push_back(std::move(name));
  }
  return names;
}

void Coordinator::FillMembers(absl::Time now, v1::JobStatus* status) const {
  const v1::ForgottenMembers& forgotten = membership_.members().forgotten();
  uint64_t joined = forgotten.joined(), lost = forgotten.lost(), step = forgotten.step();
  uint64_t examples = membership_.examples_before() + forgotten.examples();
  double rate = 0;
  if (forgotten.has_traffic()) *status->mutable_unreported() = forgotten.traffic();
  for (const auto& [id, record] : membership_.members().all()) {
    v1::MemberStatus& member = *status->add_members();
    member.set_member(id.value());
    member.set_rank(record.rank.value());
    member.set_description(record.description);
    switch (record.state) {
      case MemberState::kWaiting:
      case MemberState::kProposed:
      case MemberState::kPlanned:
        member.set_state("waiting");
        break;
      case MemberState::kAdmitted:
        member.set_state(evaluation_.standing() && evaluation_.Takes(record) ? "evaluating"
                                                                             : "training");
        break;
      case MemberState::kLeft:
      case MemberState::kRejoins:
        member.set_state("left");
        break;
      case MemberState::kFailed:
      case MemberState::kLost:
      case MemberState::kMissed:
        member.set_state("lost");
        break;
    }
    member.set_lease_age_seconds(absl::ToDoubleSeconds(now - record.last_heard));
    member.set_progress_age_seconds(absl::ToDoubleSeconds(now - record.progressed_at));
    *member.mutable_progress() = record.progress;
    member.set_examples_per_second(record.examples_per_second);
    if (facts_.step_budgets && IsCounted(record.state)) {
      member.set_step_budget(membership_.members().StepBudget(id));
    }
    member.set_part(membership_.parts().PartOf(id));
    if (record.report) {
      *status->add_worker_reports() = *record.report;
      member.mutable_progress()->set_examples(record.report->examples());
      *member.mutable_progress()->mutable_phases() = PhasesOf(*record.report);
    } else {
      AddTraffic(record.progress.traffic(), status->mutable_unreported());
    }
    examples += membership_.ExamplesOf(record);
    // Those that never took part are neither.
    if (!record.had_part()) continue;
    ++joined;
    lost += IsLost(record.state);
    rate += record.examples_per_second;
    step = std::max<uint64_t>(step, record.progress.step());
    if (record.report) step = std::max<uint64_t>(step, record.report->steps());
  }
  status->set_examples(examples);
  status->set_members_joined(joined);
  status->set_members_lost(lost);
  status->set_examples_per_second(rate);
  status->set_step(step);
  status->set_epoch(epochs_.EpochsDone(step));
}

void Coordinator::FillServers(absl::Time now, v1::JobStatus* status) const {
  uint64_t examples = std::numeric_limits<uint64_t>::max();
  for (int i = 0; i < membership_.servers().count(); ++i) {
    const ServerRecord& record = membership_.servers().at(ShardId(i));
    status->set_refused_pushes(status->refused_pushes() + record.counters.refused());
    if (facts_.replicated && record.gone) continue;
    v1::ServerStatus& server = *status->add_servers();
    server.set_rank(i);
    if (!record.known) continue;
    server.set_address(record.address);
    *server.mutable_counters() = record.counters;
    server.mutable_counters()->set_rank(i);
    server.mutable_counters()->set_parameter_bytes(record.parameter_bytes);
    server.set_counters_age_seconds(record.counters_at == absl::Time()
                                        ? absl::ToDoubleSeconds(now - record.last_heard)
                                        : absl::ToDoubleSeconds(now - record.counters_at));
    status->set_parked_pulls(status->parked_pulls() + record.counters.parked_pulls());
    status->set_resting(std::max<uint64_t>(status->resting(), record.counters.resting()));
    examples = std::min<uint64_t>(examples, record.counters.examples());
    if (facts_.synchronous) {
      status->set_round(std::max<uint64_t>(status->round(), record.counters.version()));
    }
  }
  status->set_replication_payload_bytes(membership_.servers().ReplicationPayloadBytes());
  if (examples == std::numeric_limits<uint64_t>::max()) examples = 0;
  status->set_parameter_examples(examples);
  // Those that are lost had done more than they told.
  status->set_examples(std::max<uint64_t>(status->examples(), examples));
  if (facts_.schedule) {
    // All push a minibatch at once, or each by itself.
    const auto& counted = membership_.members().Counted();
    const auto with_data =
        std::count_if(counted.begin(), counted.end(),
                      [this](const MemberRecord* member) { return facts_.has_data(member->rank); });
    const uint64_t pushes =
        facts_.synchronous ? std::max<uint64_t>(1, static_cast<uint64_t>(with_data)) : 1;
    status->set_rate_factor(
        facts_.schedule->Factor(examples, pushes * static_cast<uint64_t>(facts_.batch_size)));
  }
}

void Coordinator::FillResults(v1::JobStatus* status) const {
  for (const v1::HistoryEntry& entry : evaluation_.history()) {
    v1::HistoryEntry& shown = *status->add_history();
    shown = entry;
    // A row with one label is hit by one prediction at most.
    for (int i = 0; facts_.single_labels && i < entry.precision_at_size(); ++i) {
      shown.add_top_k_accuracy(entry.precision_at(i) * kPrecisionAt[i]);
    }
  }
  // Nobody has said in a simulation.
  if (facts_.origin.started_ns() == 0) return;
  *status->mutable_origin() = facts_.origin;
  status->mutable_origin()->set_started_ns(started_ns_);
}

v1::JobStatus Coordinator::Status(absl::Time now) const {
  if (phase_ == Phase::kEnded) now = ended_at_;
  v1::JobStatus status;
  status.set_job(facts_.name);
  status.set_method(facts_.method);
  status.set_method_description(facts_.method_description);
  status.set_state(StateWord());
  if (phase_ == Phase::kRunning) {
    for (std::string& name : WaitingFor(now)) status.add_waiting_for(std::move(name));
  }
  FillMembers(now, &status);
  FillServers(now, &status);
  status.set_train_seconds(absl::ToDoubleSeconds(clock_.Trained(now)));
  status.set_wall_seconds(absl::ToDoubleSeconds(now - created_));
  FillResults(&status);
  status.set_job_digest(facts_.digest);
  status.set_generation(membership_.generation().value());
  status.set_seed(facts_.seed);
  status.set_steps_planned(epochs_.StepsPlanned());
  status.set_version(facts_.version);
  status.set_partial_pushes(membership_.partial_pushes());
  if (facts_.holds_back) status.set_residuals_lost(membership_.residuals_lost());
  status.set_lease_timeout_seconds(absl::ToDoubleSeconds(facts_.lease_timeout));
  status.set_insecure(facts_.insecure);
  status.set_free_running(!facts_.synchronous);
  status.set_layout_hash(facts_.layout_hash);
  FillCheckpoint(now, &status);
  if (membership_.owners() != nullptr) membership_.owners()->Fill(&status);
  if (!outcome_.ok()) status.set_failure(std::string(outcome_.message()));
  status.set_outcome(OutcomeWord());
  if (is_stopped_) status.set_stop_reason(stop_reason_);
  if (phase_ == Phase::kEnded) status.set_report_json(ReportJson(status));
  return status;
}

}  // namespace tessera
