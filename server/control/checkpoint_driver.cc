#include "server/control/checkpoint_driver.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"

namespace tessera {

void CheckpointDriver::Drive(uint64_t awaited, absl::Time now) {
  const MemberTable& members = on_.membership.members();
  on_.checkpoints.SetSteps(on_.membership.start().steps());
  if (!on_.evaluation.stop() && !on_.membership.draining()) {
    uint64_t step = 0;
    for (const MemberRecord* member : members.Counted()) {
      step = std::max<uint64_t>(step, member->progress.step());
    }
    const StartingPoint& start = on_.membership.start();
    const ServerTable& servers = on_.membership.servers();
    on_.checkpoints.Drive(start.Reached(members, servers), start.StepReached(step, servers), now);
  }
  on_.checkpoints.DriveLast(now);
  if (on_.checkpoints.stage() == Checkpoints::Stage::kAgreeing) Order(awaited);
  if (on_.checkpoints.IsComplete(members)) {
    on_.checkpoints.Commit(MakeSavedJob(now), on_.membership.generation(), now);
  }
  if (!on_.checkpoints.order() && on_.checkpoints.stage() != Checkpoints::Stage::kAgreeing) {
    on_.membership.admission().DropCheckpoint();
  }
}

void CheckpointDriver::Order(uint64_t awaited) {
  Admission& admission = on_.membership.admission();
  if (!on_.checkpoints.needs_agreement()) {
    admission.OrderCheckpoint(on_.checkpoints.OnAgreed(Exchange(0)), /*holds=*/false);
  } else if (!admission.agreed_checkpoint()) {
    admission.ProposeCheckpoint(on_.checkpoints.first_promised());
  } else {
    // Where members train subnets, the next round is cut once it is known who is in it, and its members hear of the
    // checkpoint with that.
    const bool holds = !on_.facts.subnets && awaited != 0 && awaited <= on_.checkpoints.number();
    admission.OrderCheckpoint(on_.checkpoints.OnAgreed(*admission.agreed_checkpoint()), holds);
  }
}

SavedJob CheckpointDriver::MakeSavedJob(absl::Time now) const {
  const uint64_t step = on_.checkpoints.saved_step();
  SavedJob job;
  // The time is that of the checkpoint's values: it takes a while to write them, in which all go on.
  job.train_seconds =
      absl::ToDoubleSeconds(on_.clock.Trained(std::min(now, on_.checkpoints.files().copied_at())));
  job.evaluation_due = on_.checkpoints.files().evaluation_due();
  // What was found at this very step is found again.
  for (const v1::HistoryEntry& entry : on_.evaluation.history()) {
    if (entry.step() < step) job.history.push_back(entry);
  }
  job.cuts = on_.epochs.Save(on_.checkpoints.saved_step_least(), step);
  const StartingPoint& start = on_.membership.start();
  const MemberTable& members = on_.membership.members();
  uint64_t examples = start.examples_before() + members.forgotten().examples();
  for (const auto& [id, record] : members.all()) {
    if (const std::optional<uint64_t> saved = on_.checkpoints.files().ExamplesOf(record)) {
      examples += *saved;
    } else if (!IsLive(record.state) || !on_.facts.synchronous) {
      // In lockstep whoever is here and has no file in it begins after it.
      examples += start.ExamplesOf(record);
    }
  }
  job.examples = std::min(examples, kSavedCountEnd - 1);
  return job;
}

bool CheckpointDriver::BeginLast(const MemberRecord& member, bool writes_again, absl::Time now) {
  return on_.checkpoints.BeginLast(member, on_.evaluation.history().back().step(), writes_again,
                                   now);
}

void CheckpointDriver::OnDisk(const DiskTask& task, const absl::Status& status, absl::Time now) {
  // Who goes on from a checkpoint has read it when it writes to the next one. Where members advance on their own one
  // may be admitted and not have begun: the next commit prunes.
  const std::vector<CheckpointMember>& saved = task.manifest.members;
  const auto has_read = [&saved](const MemberRecord* member) {
    const auto is_it = [member](const CheckpointMember& m) {
      return m.member == member->member.value();
    };
    return !member->restored || std::any_of(saved.begin(), saved.end(), is_it);
  };
  const auto& members = on_.membership.members().Counted();
  const bool may_prune = std::all_of(members.begin(), members.end(), has_read);
  on_.checkpoints.OnDisk(task, status, may_prune, now);
  if (on_.checkpoints.last() != nullptr) {
    on_.membership.start().SetSaved(on_.checkpoints.last());
  }
}

void CheckpointDriver::FollowLosses(absl::Time now) {
  for (ShardId shard : on_.membership.losses().FollowOwners(now)) {
    if (!on_.checkpoints.order()) continue;
    v1::CheckpointPart part;
    part.set_number(on_.checkpoints.number());
    part.set_error(absl::StrCat("the leader of shard ", shard.value(), " was lost"));
    on_.checkpoints.OnPart(shard, part, now);
  }
}

void CheckpointDriver::GoBack(absl::string_view why, absl::Time now) {
  const Manifest& manifest = on_.checkpoints.last()->manifest;
  Log(LogLevel::kWarning, absl::StrCat("control: going back step=", manifest.step,
                                       " exchange=", manifest.exchange, " why=\"", why, "\""));
  ++rollbacks_;
  ++changes_;
  // The clock goes on: the job's workers wait. If it stands for an evaluation it does so until they train again.
  on_.checkpoints.GoBack(manifest.step, now);
  TakeUp();
}

void CheckpointDriver::TakeUp() {
  const SavedJob& job = on_.checkpoints.last()->job;
  const Manifest& manifest = on_.checkpoints.last()->manifest;
  on_.epochs.Restore(job.cuts, manifest.step);
  on_.evaluation.GoBack(job.history, EvaluationsHeld(manifest, job.evaluation_due));
}

uint64_t CheckpointDriver::EvaluationsHeld(const Manifest& manifest, bool one_is_due) const {
  if (on_.facts.evaluate_every == 0) return 0;
  uint64_t step = manifest.step;
  for (const CheckpointMember& member : manifest.members) step = std::max(step, member.step);
  const uint64_t passed = on_.epochs.EpochOf(step) / on_.facts.evaluate_every;
  // The one that is due is that of the last end of an epoch, to which the furthest have come.
  return passed - (one_is_due && passed > 0 ? 1 : 0);
}

void CheckpointDriver::Fill(absl::Time now, bool is_running, v1::JobStatus* status) const {
  if (!on_.facts.checkpoints && on_.facts.restored == nullptr) return;
  v1::CheckpointStatus& shown = *status->mutable_checkpoint();
  on_.checkpoints.Fill(now, &shown);
  if (is_running && on_.checkpoints.last_of_all().try_at()) {
    const absl::Duration pause =
        std::max(*on_.checkpoints.last_of_all().try_at() - now, absl::ZeroDuration());
    absl::StrAppend(shown.mutable_failure(), "; it is the last one, tried again in ",
                    absl::FormatDuration(absl::Ceil(pause, absl::Seconds(1))));
  }
  shown.set_rollbacks(rollbacks_);
  if (on_.facts.restored != nullptr) shown.set_resumed_step(on_.facts.restored->manifest.step);
  if (on_.checkpoints.last() != nullptr) {
    status->set_checkpoint_step(on_.checkpoints.last()->manifest.step);
  }
}

}  // namespace tessera
