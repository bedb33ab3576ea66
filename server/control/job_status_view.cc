#include "server/control/job_status_view.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "server/control/members/member_pace.h"
#include "server/control/traffic_sum.h"

namespace tessera {
namespace {

v1::Phases PhasesOf(const v1::WorkerReport& report) {
  v1::Phases phases;
  phases.set_compute_seconds(report.compute_seconds());
  phases.set_pull_seconds(report.pull_seconds());
  phases.set_push_seconds(report.push_seconds());
  phases.set_wait_seconds(report.wait_seconds());
  phases.set_evaluate_seconds(report.evaluate_seconds());
  return phases;
}

// How payloads of `member` go, by what servers have counted. One that has gone counts for neither.
std::string TransportOf(const ServerTable& servers, MemberId member) {
  int by_memory = 0, all = 0;
  for (int i = 0; i < servers.count(); ++i) {
    const ServerRecord& record = servers.at(ShardId(i));
    if (!record.known || record.gone) continue;
    const auto& members = record.counters.memory_members();
    ++all;
    by_memory += std::count(members.begin(), members.end(), member.value()) > 0;
  }
  if (by_memory == 0) return "tcp";
  return by_memory == all ? "shared_memory" : "shared_memory, tcp";
}

}  // namespace

void JobStatusView::Fill(absl::Time now, v1::JobStatus* status) const {
  FillFacts(status);
  FillMembers(now, status);
  FillServers(now, status);
  FillHistory(status);
  status->set_generation(membership_.generation().value());
  status->set_steps_planned(epochs_.StepsPlanned());
  status->set_partial_pushes(membership_.partial_pushes());
  if (facts_.holds_back) status->set_residuals_lost(membership_.residuals_lost());
  if (membership_.owners() != nullptr) membership_.owners()->Fill(status);
}

void JobStatusView::FillFacts(v1::JobStatus* status) const {
  status->set_job(facts_.name);
  status->set_method(facts_.method);
  status->set_method_description(facts_.method_description);
  status->set_job_digest(facts_.digest);
  status->set_seed(facts_.seed);
  status->set_version(facts_.version);
  status->set_lease_timeout_seconds(absl::ToDoubleSeconds(facts_.lease_timeout));
  status->set_insecure(facts_.insecure);
  status->set_free_running(!facts_.synchronous);
  status->set_layout_hash(facts_.layout_hash);
}

const char* JobStatusView::StateWord(const MemberRecord& record) const {
  switch (record.state) {
    case MemberState::kWaiting:
    case MemberState::kProposed:
    case MemberState::kPlanned:
      return "waiting";
    case MemberState::kAdmitted:
      return evaluation_.standing() && evaluation_.Takes(record) ? "evaluating" : "training";
    case MemberState::kLeft:
    case MemberState::kRejoins:
      return "left";
    case MemberState::kFailed:
    case MemberState::kLost:
    case MemberState::kMissed:
      return "lost";
  }
  return "";
}

void JobStatusView::FillMember(const MemberRecord& record, absl::Time now,
                               v1::JobStatus* status) const {
  v1::MemberStatus& member = *status->add_members();
  member.set_member(record.member.value());
  member.set_rank(record.rank.value());
  member.set_description(record.description);
  member.set_state(StateWord(record));
  member.set_lease_age_seconds(absl::ToDoubleSeconds(now - record.last_heard));
  member.set_progress_age_seconds(absl::ToDoubleSeconds(now - record.progressed_at));
  *member.mutable_progress() = record.progress;
  member.set_examples_per_second(record.examples_per_second);
  if (facts_.step_budgets && IsCounted(record.state)) {
    member.set_step_budget(StepBudget(membership_.members(), record.member, facts_.local_steps));
  }
  member.set_part(membership_.plans().parts().PartOf(record.member));
  if (IsCounted(record.state)) {
    member.set_transport(TransportOf(membership_.servers(), record.member));
  }
  if (record.report) {
    *status->add_worker_reports() = *record.report;
    member.mutable_progress()->set_examples(record.report->examples());
    *member.mutable_progress()->mutable_phases() = PhasesOf(*record.report);
  } else {
    AddTraffic(record.progress.traffic(), status->mutable_unreported());
  }
}

void JobStatusView::FillMembers(absl::Time now, v1::JobStatus* status) const {
  const v1::ForgottenMembers& forgotten = membership_.members().forgotten();
  uint64_t joined = forgotten.joined(), lost = forgotten.lost(), step = forgotten.step();
  uint64_t examples = membership_.start().examples_before() + forgotten.examples();
  double rate = 0;
  if (forgotten.has_traffic()) *status->mutable_unreported() = forgotten.traffic();
  for (const auto& [id, record] : membership_.members().all()) {
    FillMember(record, now, status);
    examples += membership_.start().ExamplesOf(record);
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

void JobStatusView::FillServers(absl::Time now, v1::JobStatus* status) const {
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

void JobStatusView::FillHistory(v1::JobStatus* status) const {
  status->set_evaluations(evaluation_.history().size());
  for (const v1::HistoryEntry& entry : evaluation_.history()) {
    v1::HistoryEntry& shown = *status->add_history();
    shown = entry;
    // A row with one label is hit by one prediction at most.
    for (int i = 0; facts_.single_labels && i < entry.precision_at_size(); ++i) {
      shown.add_top_k_accuracy(entry.precision_at(i) * kPrecisionAt[i]);
    }
    if (facts_.predicts_tokens) shown.set_perplexity(std::exp(entry.test_loss()));
    if (entry.precision_at_size() > kPrecisionsShown) {
      shown.mutable_precision_at()->Truncate(kPrecisionsShown);
    }
  }
}

}  // namespace tessera
