#include "tests/server/monitor/whole_status.h"

#include <string>

namespace tessera {
namespace {

v1::MemberStatus* AddMember(uint64_t id, uint32_t rank, const std::string& state, uint64_t examples,
                            v1::JobStatus* status) {
  v1::MemberStatus* member = status->add_members();
  member->set_member(id);
  member->set_rank(rank);
  member->set_state(state);
  member->set_lease_age_seconds(0.25 * id);
  member->set_progress_age_seconds(0.5 * id);
  member->set_examples_per_second(100 * id);
  member->set_description("host:" + std::to_string(id));
  v1::Progress& progress = *member->mutable_progress();
  progress.set_step(40 + id);
  progress.set_exchange(20 + id);
  progress.set_examples(examples);
  progress.set_train_loss(0.5);
  progress.set_steps_per_second(8);
  progress.mutable_phases()->set_compute_seconds(10);
  progress.mutable_phases()->set_pull_seconds(1);
  progress.mutable_phases()->set_push_seconds(2);
  progress.mutable_phases()->set_wait_seconds(3);
  progress.mutable_phases()->set_evaluate_seconds(4);
  return member;
}

void AddServer(uint32_t rank, v1::JobStatus* status) {
  v1::ServerStatus& server = *status->add_servers();
  server.set_rank(rank);
  server.set_address("10.0.0.1:7000");
  server.set_counters_age_seconds(0.1);
  v1::ServerCounters& counters = *server.mutable_counters();
  counters.set_rank(rank);
  counters.set_version(7 + rank);
  counters.set_pushes(10);
  counters.set_duplicates(1);
  counters.set_refused(3);
  counters.set_refused_non_finite(2);
  counters.set_parked_pulls(rank);
  // 4 in time, 3 one late, 2 five late, 1 of 64 or more.
  for (int i = 0; i < 65; ++i) {
    counters.add_staleness_histogram(i == 0 ? 4 : i == 1 ? 3 : i == 5 ? 2 : i == 64);
  }
  counters.set_staleness_sum(113);
  counters.set_staleness_max(100);
  counters.set_rss_bytes(1 << 20);
  counters.set_peak_rss_bytes(2 << 20);
  counters.set_staged_bytes(512);
  counters.set_exchange_committed(21);
  counters.set_push_payload_bytes(1000 + rank);
  counters.set_pull_payload_bytes(2000);
  counters.set_replication_payload_bytes(300);
  counters.set_parameter_bytes(4096);
  counters.set_examples(900);
}

}  // namespace

v1::JobStatus WholeStatus() {
  v1::JobStatus status;
  status.set_job("digits");
  status.set_method("ssp");
  status.set_state("training");
  status.add_waiting_for("worker 1");
  v1::MemberStatus& first = *AddMember(1, 0, "training", 500, &status);
  first.set_step_budget(5);
  first.mutable_progress()->set_batch_rows(40);
  AddMember(2, 1, "lost", 300, &status);
  AddMember(3, 2, "left", 150, &status);
  AddMember(4, 1, "training", 50, &status)->set_part(0.25);
  AddServer(0, &status);
  AddServer(1, &status);
  status.set_train_seconds(12.5);
  status.set_wall_seconds(20);
  status.set_examples_per_second(500);
  for (int i = 1; i <= 2; ++i) {
    v1::HistoryEntry& entry = *status.add_history();
    entry.set_step(10 * i);
    entry.set_epoch(i);
    entry.set_train_loss(1.0 / i);
    entry.set_test_loss(2.0 / i);
    entry.set_test_accuracy(0.4 * i);
    entry.set_perplexity(7.5 / i);
    for (const double precision : {0.8, 0.6, 0.5}) entry.add_precision_at(precision);
    for (const double accuracy : {0.8, 0.9, 1.0}) entry.add_top_k_accuracy(accuracy);
  }
  status.set_round(9);
  status.set_job_digest("d1");
  status.set_generation(3);
  status.set_steps_planned(400);
  status.set_version("1.0");
  status.set_security("none");
  status.set_step(44);
  status.set_epoch(2.5);
  status.set_members_joined(4);
  status.set_members_lost(1);
  status.set_partial_pushes(1);
  status.set_residuals_lost(1);
  v1::WorkerReport& report = *status.add_worker_reports();
  report.set_rank(2);
  report.set_exchanges(20);
  report.set_push_payload_bytes(700);
  report.set_pull_payload_bytes(600);
  report.set_push_wire_bytes(710);
  report.set_pull_wire_bytes(610);
  report.set_other_payload_bytes(5);
  report.set_shared_memory_bytes(200);
  v1::Traffic& others = *status.mutable_unreported();
  others.set_exchanges(22);
  others.set_push_payload_bytes(1300);
  others.set_pull_payload_bytes(1400);
  others.set_push_wire_bytes(1390);
  others.set_pull_wire_bytes(1490);
  others.set_other_payload_bytes(10);
  others.set_shared_memory_bytes(300);
  status.set_refused_pushes(6);
  status.set_parameter_examples(900);
  status.set_examples(1000);
  status.set_rate_factor(0.5);
  status.set_parked_pulls(1);
  status.set_resting(1);
  status.set_lease_timeout_seconds(10);
  v1::CheckpointStatus& checkpoint = *status.mutable_checkpoint();
  checkpoint.set_number(3);
  checkpoint.set_step(40);
  checkpoint.set_bytes(9000);
  checkpoint.set_write_seconds(0.5);
  checkpoint.set_age_seconds(6);
  checkpoint.set_count(3);
  checkpoint.set_failed_number(4);
  checkpoint.set_failed_count(2);
  checkpoint.set_failure("no room");
  checkpoint.set_open_number(5);
  checkpoint.set_rollbacks(1);
  checkpoint.set_resumed_step(20);
  for (uint32_t shard = 0; shard < 2; ++shard) {
    v1::ShardOwner& owner = *status.add_owners();
    owner.set_shard(shard);
    owner.set_leader(shard);
    owner.set_in_sync(shard == 0);
  }
  status.set_takeovers(2);
  status.add_takeover_seconds(0.3);
  status.add_takeover_seconds(0.2);
  status.set_replication_payload_bytes(600);
  v1::CoordinatorStatus& coordinator = *status.mutable_coordinator();
  coordinator.set_term(2);
  coordinator.set_silent_seconds(12);
  coordinator.set_is_away(true);
  coordinator.set_waits_seconds(30);
  return status;
}

}  // namespace tessera
