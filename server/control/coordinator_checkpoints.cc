// The coordinator's part in checkpoints, and how it goes on from one.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "server/control/coordinator.h"
#include "server/control/progress_limits.h"

namespace tessera {

void Coordinator::DriveCheckpoint(absl::Time now) {
  using Stage = Checkpoints::Stage;
  const bool trains = facts_.checkpoints && phase_ == Phase::kRunning && membership_.started() &&
                      !membership_.paused();
  if (!trains) return;
  checkpoints_.SetSteps(membership_.exchange_steps());
  const auto& members = membership_.members();
  if (!evaluation_.stop() && !membership_.draining()) {
    const Exchange highest = membership_.ReachedExchange();
    uint64_t step = 0;
    for (const MemberRecord* member : members.Counted()) {
      step = std::max<uint64_t>(step, member->progress.step());
    }
    checkpoints_.Drive(highest, step, now);
  }
  checkpoints_.DriveLast(now);
  if (checkpoints_.stage() == Stage::kAgreeing) {
    // Of subnets the next round is cut once it is known who is in it, and its members hear of the checkpoint with that.
    const bool holds = !facts_.subnets && !leavers_.empty() && leavers_.front().checkpoint != 0 &&
                       leavers_.front().checkpoint <= checkpoints_.number();
    if (!checkpoints_.needs_agreement()) {
      membership_.OrderCheckpoint(checkpoints_.OnAgreed(Exchange(0)), /*holds=*/false);
    } else if (!membership_.agreed_checkpoint()) {
      membership_.ProposeCheckpoint(checkpoints_.first_promised());
    } else {
      membership_.OrderCheckpoint(checkpoints_.OnAgreed(*membership_.agreed_checkpoint()), holds);
    }
  }
  if (checkpoints_.IsComplete(members)) {
    checkpoints_.Commit(SaveJob(now), membership_.generation(), now);
  }
  if (!checkpoints_.order() && checkpoints_.stage() != Stage::kAgreeing) {
    membership_.DropCheckpoint();
  }
}

SavedJob Coordinator::SaveJob(absl::Time now) const {
  const uint64_t step = checkpoints_.saved_step();
  SavedJob job;
  // That of its values: it takes a while to write them, in which all go on.
  job.train_seconds =
      absl::ToDoubleSeconds(clock_.Trained(std::min(now, checkpoints_.copied_at())));
  job.evaluation_due = checkpoints_.evaluation_due();
  // What was found at this very step is found again.
  for (const v1::HistoryEntry& entry : evaluation_.history()) {
    if (entry.step() < step) job.history.push_back(entry);
  }
  job.cuts = epochs_.Save(checkpoints_.saved_step_least(), step);
  uint64_t examples = membership_.examples_before() + membership_.members().forgotten().examples();
  for (const auto& [id, record] : membership_.members().all()) {
    if (const std::optional<uint64_t> saved = checkpoints_.ExamplesOf(record)) {
      examples += *saved;
    } else if (!IsLive(record.state) || !facts_.synchronous) {
      // In lockstep whoever is here and has no file in it begins after it.
      examples += membership_.ExamplesOf(record);
    }
  }
  job.examples = std::min(examples, kSavedCountEnd - 1);
  return job;
}

absl::StatusOr<v1::SavedReply> Coordinator::Saved(const v1::SavedRequest& request, absl::Time now) {
  TESSERA_RETURN_IF_ERROR(CheckProgress("saved", request.progress()));
  TESSERA_ASSIGN_OR_RETURN(const MemberRecord* member, Admitted(MemberId(request.member()), now));
  v1::SavedReply reply;
  if (request.number() != 0) {
    checkpoints_.OnSaved(*member, request, now);
    Settle(now);
    return reply;
  }
  // One that leaves before the end has nothing to do with it.
  if (!facts_.checkpoints || !evaluation_.stop() || !evaluation_.Takes(*member)) return reply;
  if (!checkpoints_.BeginLast(*member, evaluation_.history().back().step(), request.writes_again(),
                              now)) {
    reply.set_wait(true);
    Settle(now);
    return reply;
  }
  Settle(now);
  if (checkpoints_.has_last_of_all()) return reply;
  if (checkpoints_.stage() == Checkpoints::Stage::kWriting) {
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
  if (phase_ != Phase::kRunning || membership_.draining() || evaluation_.stop()) {
    return refuse("the job is ending");
  }
  if (!membership_.started() || membership_.paused()) return refuse("the job does not train yet");
  Log(LogLevel::kInfo, absl::StrCat("checkpoint: asked for reason=\"", reason, "\""));
  const uint64_t number = checkpoints_.Ask();
  Settle(now);
  return number;
}

void Coordinator::OnDisk(const DiskTask& task, const absl::Status& status, absl::Time now) {
  // Who goes on from a checkpoint has read it when it writes to the next one. Where members advance on their own one
  // may be admitted and not have begun: the next commit prunes.
  const std::vector<CheckpointMember>& saved = task.manifest.members;
  const auto has_read = [&saved](const MemberRecord* member) {
    const auto is_it = [member](const CheckpointMember& m) {
      return m.member == member->member.value();
    };
    return !member->restored || std::any_of(saved.begin(), saved.end(), is_it);
  };
  const auto& members = membership_.members().Counted();
  checkpoints_.OnDisk(task, status, std::all_of(members.begin(), members.end(), has_read), now);
  if (checkpoints_.last() != nullptr) membership_.SetSaved(checkpoints_.last());
  Settle(now);
}

void Coordinator::Restore() {
  const SavedJob& job = checkpoints_.last()->job;
  const Manifest& manifest = checkpoints_.last()->manifest;
  epochs_.Restore(job.cuts, manifest.step);
  evaluation_.GoBack(job.history, EvaluationsHeld(manifest, job.evaluation_due));
  removed_late_ = false;
}

uint64_t Coordinator::EvaluationsHeld(const Manifest& manifest, bool one_is_due) const {
  if (facts_.evaluate_every == 0) return 0;
  uint64_t step = manifest.step;
  for (const CheckpointMember& member : manifest.members) step = std::max(step, member.step);
  const uint64_t passed = epochs_.EpochOf(step) / facts_.evaluate_every;
  // It is that of the last end of an epoch, to which the furthest have come.
  return passed - (one_is_due && passed > 0 ? 1 : 0);
}

void Coordinator::GoBack(absl::string_view why, absl::Time now) {
  const Manifest& manifest = checkpoints_.last()->manifest;
  Log(LogLevel::kWarning, absl::StrCat("control: going back step=", manifest.step,
                                       " exchange=", manifest.exchange, " why=\"", why, "\""));
  ++rollbacks_;
  ++changes_;
  // The clock goes on: its workers wait. If it stands for an evaluation it does so until they train again.
  checkpoints_.GoBack(manifest.step, now);
  Restore();
  // Servers select anew what they had selected since.
  BeginCores();
  membership_.GoBack();
}

void Coordinator::BeginCores() {
  if (!facts_.core) return;
  CoreAgreement::Options cores;
  cores.servers = facts_.servers;
  cores.parameters = facts_.parameters;
  cores.entries = static_cast<uint64_t>(facts_.entries);
  cores.core_entries = static_cast<uint64_t>(CoreCount(*facts_.core, facts_.entries));
  cores.gradient_weight = facts_.core->gradient_weight;
  if (cores_) changes_ += cores_->changes() + 1;
  cores_.emplace(cores);
}

void Coordinator::FillCheckpoint(absl::Time now, v1::JobStatus* status) const {
  if (!facts_.checkpoints && facts_.restored == nullptr) return;
  checkpoints_.Fill(now, status->mutable_checkpoint());
  if (phase_ == Phase::kRunning && checkpoints_.try_last_at()) {
    const absl::Duration pause = std::max(*checkpoints_.try_last_at() - now, absl::ZeroDuration());
    absl::StrAppend(status->mutable_checkpoint()->mutable_failure(),
                    "; it is the last one, tried again in ",
                    absl::FormatDuration(absl::Ceil(pause, absl::Seconds(1))));
  }
  status->mutable_checkpoint()->set_rollbacks(rollbacks_);
  if (facts_.restored != nullptr) {
    status->mutable_checkpoint()->set_resumed_step(facts_.restored->manifest.step);
  }
  if (checkpoints_.last() != nullptr) {
    status->set_checkpoint_step(checkpoints_.last()->manifest.step);
  }
}

}  // namespace tessera
