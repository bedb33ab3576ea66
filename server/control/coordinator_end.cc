// How a job ends: by itself, because it is asked to, or because it cannot go on.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/log.h"
#include "common/base/utf8.h"
#include "server/control/coordinator.h"

namespace tessera {
namespace {

// How long a job that is drained while it goes back has to begin, in leases: its members have kRejoinLeases of them.
constexpr int kDrainLeases = kRejoinLeases + 2;

}  // namespace

void Coordinator::Drain(absl::string_view reason, absl::Time now) {
  if (phase_ != Phase::kRunning) return;
  Log(LogLevel::kInfo, absl::StrCat("control: drain reason=\"", reason, "\""));
  if (stop_reason_.empty() && !reason.empty()) {
    stop_reason_ = ToUtf8(reason);
    ++changes_;
  }
  if (membership_.started()) {
    membership_.Drain();
  } else if (rollbacks_ == 0) {
    is_stopped_ = true;
    Fail("it was drained before it had started", now);
    return;
  } else if (!awaits_drain()) {
    drain_since_ = now;
    ++changes_;
  }
  Settle(now);
}

void Coordinator::FollowDrain(absl::Time now) {
  if (!awaits_drain()) return;
  if (membership_.started()) {
    drain_since_ = absl::InfiniteFuture();
    ++changes_;
    membership_.Drain();
    return;
  }
  const absl::Duration patience = kDrainLeases * facts_.lease_timeout;
  if (now - drain_since_ <= patience) return;
  const std::vector<std::string> missing = WaitingFor();
  is_stopped_ = true;
  Fail(absl::StrCat("it was drained while it went back to a checkpoint, and ",
                    missing.empty() ? "it" : absl::StrJoin(missing, ", "), " was not ready within ",
                    absl::FormatDuration(patience),
                    "; start the job again, with checkpoint.restore it goes on from step ",
                    checkpoints_.last()->manifest.step),
       now);
}

void Coordinator::Stop(absl::string_view reason, absl::Time now) {
  if (phase_ != Phase::kRunning) return;
  is_stopped_ = true;
  stop_reason_ = ToUtf8(reason);
  Fail(absl::StrCat("stopped: ", reason.empty() ? "no reason given" : reason), now);
}

void Coordinator::GiveUp(absl::string_view why, absl::Time now) {
  has_strangers_ = true;
  Fail(why, now);
}

void Coordinator::Fail(absl::string_view why, absl::Time now) {
  if (phase_ != Phase::kRunning) return;
  Log(LogLevel::kError,
      absl::StrCat("control: job ", is_stopped_ ? "stopped" : "failed", " why=\"", why, "\""));
  for (const auto& [id, record] : membership_.members().all()) {
    if (IsLive(record.state)) untold_.insert(id);
    if (evaluation_.IsParked(record)) {
      refused_.push_back(
          {id, absl::FailedPreconditionError(absl::StrCat("the job has failed: ", why))});
    }
  }
  BeginEnd(absl::AbortedError(why), now);
}

void Coordinator::BeginEnd(absl::Status outcome, absl::Time now) {
  phase_ = Phase::kEnding;
  ++changes_;
  outcome_ = std::move(outcome);
  ending_since_ = now;
  clock_.End(now);
  membership_.CloseServers(outcome_.message());
  Settle(now);
}

void Coordinator::RemoveLate() {
  std::vector<MemberId> late;
  for (const auto& [id, record] : membership_.members().all()) {
    if (IsLive(record.state) && !evaluation_.Takes(record)) late.push_back(id);
  }
  for (MemberId member : late) {
    if (membership_.members().Find(member)->state != MemberState::kAdmitted) late_.insert(member);
    membership_.Remove(member, MemberState::kLeft, "training ended before it could begin");
  }
}

bool Coordinator::HasTrained(const MemberRecord& member) const {
  // The report has the last steps, which no renewal may have told.
  const uint64_t reported = member.report ? member.report->steps() : 0;
  return HasTrained(std::max<uint64_t>(member.progress.step(), reported), member.progress.epoch());
}

bool Coordinator::HasTrained(uint64_t step, uint64_t epoch) const {
  return (facts_.steps > 0 && step >= static_cast<uint64_t>(facts_.steps)) ||
         (facts_.epochs > 0 && epoch >= static_cast<uint64_t>(facts_.epochs));
}

bool Coordinator::HasReachedTarget() const {
  const std::vector<v1::HistoryEntry>& history = evaluation_.history();
  return facts_.target_accuracy > 0 && !history.empty() &&
         history.back().test_accuracy() >= facts_.target_accuracy;
}

std::string Coordinator::OutcomeWord() const {
  if (phase_ == Phase::kRunning) return "";
  if (is_stopped_) return "stopped";
  return outcome_.ok() ? "finished" : "failed";
}

std::optional<std::string> Coordinator::LacksHalf(absl::Time now) {
  const std::optional<Membership::MissingHalf> half = membership_.FindMissingHalf();
  if (!half) {
    half_missing_since_ = absl::InfiniteFuture();
    return std::nullopt;
  }
  half_missing_since_ = std::min(half_missing_since_, now);
  // Everybody scores the whole model: those who have stopped can do without the others' layers.
  const auto& counted = membership_.members().Counted();
  const bool have_stopped =
      evaluation_.standing() ||
      std::all_of(counted.begin(), counted.end(), [this](const MemberRecord* member) {
        return evaluation_.IsParked(*member) || HasTrained(*member) ||
               membership_.HasDrained(*member);
      });
  // Where everybody is asked to end they all leave, one after the other.
  const bool may_leave = half->left && now - half_missing_since_ <= facts_.lease_timeout;
  if (have_stopped || may_leave) return std::nullopt;
  return half->why;
}

void Coordinator::Settle(absl::Time now) {
  if (phase_ == Phase::kRunning && membership_.failure()) {
    Fail(*membership_.failure(), now);
    return;
  }
  if (phase_ == Phase::kRunning) FollowDrain(now);
  DriveLeaves(now);
  DriveCheckpoint(now);
  evaluation_.OnPlans(membership_.servers().AppliedByAll() >= membership_.generation(), now);
  evaluation_.OnMembers(membership_.members(), now);
  if (evaluation_.stop() && !removed_late_) {
    removed_late_ = true;
    ++changes_;
    RemoveLate();
    membership_.OnTrainingOver();
  }
  if (phase_ == Phase::kRunning) {
    if (const std::optional<std::string> why = LacksHalf(now); why.has_value()) {
      Fail(*why, now);
      return;
    }
  }
  if (phase_ == Phase::kRunning && membership_.started() &&
      membership_.members().Counted().empty()) {
    const v1::ForgottenMembers& forgotten = membership_.members().forgotten();
    int finished = forgotten.has_left(), waiting = 0;
    bool has_trained =
        forgotten.has_left() && HasTrained(forgotten.left_step(), forgotten.left_epoch());
    const MemberRecord* last = nullptr;
    for (const auto& [id, record] : membership_.members().all()) {
      const bool left = record.state == MemberState::kLeft && record.first_exchange != Exchange();
      finished += left;
      has_trained = has_trained || (left && HasTrained(record));
      waiting += IsLive(record.state) && membership_.MayBegin(record);
      const bool is_lost =
          record.state == MemberState::kFailed || record.state == MemberState::kLost;
      if (is_lost && (last == nullptr || record.ending >= last->ending)) last = &record;
    }
    // Who waits to join goes on with what is in the parameters, unless training is over.
    const bool ends_well = evaluation_.stop()
                               ? finished > 0
                               : has_trained || (waiting == 0 && membership_.last_left());
    if (ends_well) {
      // A drain may have come when there was nothing left to do. Without one, a last evaluation is that of the end.
      const bool was_last = evaluation_.stop() && !membership_.draining();
      // Clients that begin no epoch know themselves when they are done.
      const bool is_known = epochs_.StepsPlanned() > 0 || !stop_reason_.empty();
      is_stopped_ = is_known && !has_trained && !was_last && !HasReachedTarget();
      if (is_stopped_ && stop_reason_.empty()) stop_reason_ = "all workers have left";
      BeginEnd(absl::OkStatus(), now);
      return;
    }
    if (waiting == 0) {
      std::string why = "all workers are gone";
      if (last != nullptr) {
        absl::StrAppend(&why, "; worker ", last->rank.value(), ": ", last->ended);
      }
      Fail(why, now);
      return;
    }
  }
  if (phase_ != Phase::kEnding) return;
  for (auto it = untold_.begin(); it != untold_.end();) {
    const MemberRecord* const record = membership_.members().Find(*it);
    it = record != nullptr && IsLive(record->state) ? std::next(it) : untold_.erase(it);
  }
  const bool all_know =
      membership_.servers().AllClosed() && untold_.empty() && late_.empty() && !has_strangers_;
  if (all_know || now - ending_since_ > facts_.lease_timeout) {
    phase_ = Phase::kEnded;
    ++changes_;
    ended_at_ = now;
    Log(LogLevel::kInfo,
        absl::StrCat("control: job ended outcome=\"",
                     outcome_.ok() ? OutcomeWord() : std::string(outcome_.message()), "\""));
  }
}

}  // namespace tessera
