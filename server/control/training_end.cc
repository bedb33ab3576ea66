#include "server/control/training_end.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/log.h"

namespace tessera {
namespace {

// How long a job that is drained while it goes back has to begin, in leases: its members have kRejoinLeases of them.
constexpr int kDrainLeases = kRejoinLeases + 2;

}  // namespace

std::optional<std::string> TrainingEnd::Drain(absl::string_view reason, bool has_gone_back,
                                              absl::Time now) {
  Log(LogLevel::kInfo, absl::StrCat("control: drain reason=\"", reason, "\""));
  end_.SetStopReason(reason);
  if (membership_.started()) {
    membership_.Drain();
  } else if (!has_gone_back) {
    end_.SetStopped(true);
    return "it was drained before it had started";
  } else if (!awaits_drain()) {
    drain_since_ = now;
    ++changes_;
  }
  return std::nullopt;
}

std::optional<std::string> TrainingEnd::FollowDrain(const std::vector<std::string>& missing,
                                                    uint64_t restore_step, absl::Time now) {
  if (membership_.started()) {
    drain_since_ = absl::InfiniteFuture();
    ++changes_;
    membership_.Drain();
    return std::nullopt;
  }
  const absl::Duration patience = kDrainLeases * facts_.lease_timeout;
  if (now - drain_since_ <= patience) return std::nullopt;
  end_.SetStopped(true);
  return absl::StrCat("it was drained while it went back to a checkpoint, and ",
                      missing.empty() ? "it" : absl::StrJoin(missing, ", "),
                      " was not ready within ", absl::FormatDuration(patience),
                      "; start the job again, with checkpoint.restore it goes on from step ",
                      restore_step);
}

void TrainingEnd::RemoveLate() {
  if (!evaluation_.stop() || membership_.stage().training_over()) return;
  std::vector<MemberId> late;
  for (const auto& [id, record] : membership_.members().all()) {
    if (IsLive(record.state) && !evaluation_.Takes(record)) late.push_back(id);
  }
  for (MemberId member : late) {
    if (membership_.members().Find(member)->state != MemberState::kAdmitted) end_.AddLate(member);
    membership_.Remove(member, MemberState::kLeft, "training ended before it could begin");
  }
  membership_.OnTrainingOver();
}

bool TrainingEnd::HasTrained(const MemberRecord& member) const {
  // The report has the last steps, which no renewal may have told.
  const uint64_t reported = member.report ? member.report->steps() : 0;
  return HasTrained(std::max<uint64_t>(member.progress.step(), reported), member.progress.epoch());
}

bool TrainingEnd::HasTrained(uint64_t step, uint64_t epoch) const {
  return (facts_.steps > 0 && step >= static_cast<uint64_t>(facts_.steps)) ||
         (facts_.epochs > 0 && epoch >= static_cast<uint64_t>(facts_.epochs));
}

bool TrainingEnd::HasReachedTarget() const {
  const std::vector<v1::HistoryEntry>& history = evaluation_.history();
  return !history.empty() && facts_.ReachesTarget(history.back().test_accuracy());
}

std::optional<std::string> TrainingEnd::LacksHalf(absl::Time now) {
  const std::optional<TrainedHalves::Missing> half = membership_.halves().FindMissing();
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
               membership_.drain().HasStopped(*member);
      });
  // Where everybody is asked to end they all leave, one after the other.
  const bool may_leave = half->has_left && now - half_missing_since_ <= facts_.lease_timeout;
  if (have_stopped || may_leave) return std::nullopt;
  return half->why;
}

std::optional<absl::Status> TrainingEnd::Decide(absl::Time now) {
  if (const std::optional<std::string> why = LacksHalf(now)) return absl::AbortedError(*why);
  if (!membership_.started() || !membership_.members().Counted().empty()) return std::nullopt;
  return DecideWithoutMembers();
}

std::optional<absl::Status> TrainingEnd::DecideWithoutMembers() {
  const v1::ForgottenMembers& forgotten = membership_.members().forgotten();
  int finished = forgotten.has_left(), waiting = 0;
  bool has_trained =
      forgotten.has_left() && HasTrained(forgotten.left_step(), forgotten.left_epoch());
  const MemberRecord* last = nullptr;
  for (const auto& [id, record] : membership_.members().all()) {
    const bool left = record.state == MemberState::kLeft && record.had_begun();
    finished += left;
    has_trained = has_trained || (left && HasTrained(record));
    waiting += IsLive(record.state) && membership_.sites().MayBegin(record);
    const bool is_lost = record.state == MemberState::kFailed || record.state == MemberState::kLost;
    if (is_lost && (last == nullptr || record.ending >= last->ending)) last = &record;
  }
  // Whoever waits to join goes on with what is in the parameters, unless training is over.
  const bool ends_well = evaluation_.stop()
                             ? finished > 0
                             : has_trained || (waiting == 0 && membership_.members().last_left());
  if (ends_well) {
    // A drain may have come when there was nothing left to do. Without one, a last evaluation is that of the end.
    const bool was_last = evaluation_.stop() && !membership_.draining();
    // Clients that begin no epoch know themselves when they are done.
    const bool is_known = epochs_.StepsPlanned() > 0 || !end_.stop_reason().empty();
    end_.SetStopped(is_known && !has_trained && !was_last && !HasReachedTarget());
    if (end_.is_stopped()) end_.SetStopReason("all workers have left");
    return absl::OkStatus();
  }
  if (waiting > 0) return std::nullopt;
  if (last == nullptr) return absl::AbortedError("all workers are gone");
  return absl::AbortedError(
      absl::StrCat("all workers are gone; worker ", last->rank.value(), ": ", last->ended));
}

void TrainingEnd::ExtendLeases(absl::Time now) {
  if (half_missing_since_ != absl::InfiniteFuture()) half_missing_since_ = now;
  Reconnect(now);
}

void TrainingEnd::Reconnect(absl::Time now) {
  if (awaits_drain()) drain_since_ = now;
}

void TrainingEnd::Save(v1::CoordinatorState* state) const {
  if (awaits_drain()) state->set_drain_since(absl::ToUnixNanos(drain_since_));
}

void TrainingEnd::Load(const v1::CoordinatorState& state) {
  drain_since_ =
      state.has_drain_since() ? absl::FromUnixNanos(state.drain_since()) : absl::InfiniteFuture();
}

}  // namespace tessera
