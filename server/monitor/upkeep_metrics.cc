#include "server/monitor/upkeep_metrics.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

// Adds what became of checkpoints in this run.
void AddCheckpoint(const v1::CheckpointStatus& checkpoint, MetricSet* set) {
  set->Counter("tessera_checkpoints_total", "Checkpoints that were written whole.",
               checkpoint.count());
  set->Counter("tessera_checkpoint_failures_total", "Checkpoints that could not be written.",
               checkpoint.failed_count());
  set->Gauge("tessera_checkpoint_failed",
             "1: the last one could not be written; status and log say why.",
             checkpoint.failed_number() > 0 ? 1 : 0);
  set->Gauge("tessera_checkpoint_open", "1: one is being written.",
             checkpoint.open_number() > 0 ? 1 : 0);
  set->Counter("tessera_checkpoint_rollbacks_total",
               "Times that the job went back to a checkpoint.", checkpoint.rollbacks());
  if (checkpoint.has_resumed_step()) {
    set->Gauge("tessera_checkpoint_resumed_step",
               "The step of the checkpoint that the job goes on from.", checkpoint.resumed_step());
  }
  // Before the first checkpoint its fields say nothing.
  if (checkpoint.count() == 0) return;
  set->Gauge("tessera_checkpoint_step", "The step of the last whole checkpoint of this run.",
             checkpoint.step());
  set->Gauge("tessera_checkpoint_bytes", "Its size, all files together.", checkpoint.bytes());
  set->Gauge("tessera_checkpoint_age_seconds", "Seconds since it was whole.",
             checkpoint.age_seconds());
  set->Gauge("tessera_checkpoint_write_seconds",
             "From the moment that its values are of until it was whole.",
             checkpoint.write_seconds());
}

// Adds who leads each shard and whether it is protected.
void AddStandbys(const v1::JobStatus& status, MetricSet* set) {
  for (const v1::ShardOwner& owner : status.owners()) {
    const std::string shard = absl::StrCat(owner.shard());
    set->Gauge("tessera_shard_led",
               "1: some server leads the shard. 0: nobody does, and the job waits.",
               owner.has_leader() ? 1 : 0, {{"shard", shard}});
    set->Gauge("tessera_shard_protected", "1: a standby has all of the shard and could take over.",
               owner.in_sync() ? 1 : 0, {{"shard", shard}});
  }
  set->Counter("tessera_takeovers_total", "Times that a standby took over.", status.takeovers());
  if (status.takeover_seconds().empty()) return;
  set->Gauge("tessera_takeover_seconds",
             "Of the last takeover: from when the loss was noticed until the standby had the plan.",
             *status.takeover_seconds().rbegin());
}

// Adds the coordinator as this server sees it.
void AddCoordinator(const v1::CoordinatorStatus& coordinator, MetricSet* set) {
  if (coordinator.term() > 0) {
    set->Gauge("tessera_coordinator_term",
               "One more with every process that takes the job over; where it is known.",
               coordinator.term());
  }
  set->Gauge("tessera_coordinator_away",
             "1: this server has not heard the coordinator for longer than its lease, and nothing "
             "is trained.",
             coordinator.is_away() ? 1 : 0);
  set->Gauge("tessera_coordinator_silent_seconds",
             "Since this server last heard the coordinator; 0: it is here.",
             coordinator.silent_seconds());
  if (coordinator.is_away()) {
    set->Gauge("tessera_coordinator_wait_seconds", "Until this server gives up and ends.",
               coordinator.waits_seconds());
  }
}

}  // namespace

void AddUpkeepMetrics(const v1::JobStatus& status, MetricSet* set) {
  if (status.has_checkpoint()) AddCheckpoint(status.checkpoint(), set);
  if (!status.owners().empty()) AddStandbys(status, set);
  if (status.has_coordinator()) AddCoordinator(status.coordinator(), set);
}

}  // namespace tessera
