#include "server/control/job_end.h"

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/utf8.h"

namespace tessera {

std::string JobEnd::OutcomeWord() const {
  if (running()) return "";
  if (is_stopped_) return "stopped";
  return outcome_.ok() ? "finished" : "failed";
}

void JobEnd::SetStopReason(absl::string_view reason, bool replaces) {
  if (!replaces && (reason.empty() || !stop_reason_.empty())) return;
  stop_reason_ = ToUtf8(reason);
  ++changes_;
}

void JobEnd::Begin(absl::Status outcome, absl::Time now) {
  phase_ = Phase::kEnding;
  ++changes_;
  outcome_ = std::move(outcome);
  ending_since_ = now;
  if (outcome_.ok()) return;
  for (const auto& [id, record] : members_.all()) {
    if (IsLive(record.state)) untold_.insert(id);
  }
}

bool JobEnd::TellLate(MemberId member) {
  if (late_.erase(member) == 0) return false;
  ++changes_;
  return true;
}

absl::Status JobEnd::Refusal(MemberId member) {
  if (running()) return absl::OkStatus();
  changes_ += untold_.erase(member);
  return absl::FailedPreconditionError(
      outcome_.ok() ? std::string("the job has ended")
                    : absl::StrCat("the job has failed: ", outcome_.message()));
}

void JobEnd::Conclude(bool servers_closed, absl::Time now) {
  if (!ending()) return;
  for (auto it = untold_.begin(); it != untold_.end();) {
    const MemberRecord* const record = members_.Find(*it);
    it = record != nullptr && IsLive(record->state) ? std::next(it) : untold_.erase(it);
  }
  const bool all_know = servers_closed && untold_.empty() && late_.empty() && !has_strangers_;
  if (!all_know && now - ending_since_ <= facts_.lease_timeout) return;
  phase_ = Phase::kEnded;
  ++changes_;
  ended_at_ = now;
  Log(LogLevel::kInfo,
      absl::StrCat("control: job ended outcome=\"",
                   outcome_.ok() ? OutcomeWord() : std::string(outcome_.message()), "\""));
}

void JobEnd::Save(v1::CoordinatorState* state) const {
  state->set_phase(static_cast<uint32_t>(phase_));
  state->set_outcome(static_cast<uint32_t>(outcome_.code()));
  state->set_failure(std::string(outcome_.message()));
  state->set_is_stopped(is_stopped_);
  state->set_stop_reason(stop_reason_);
  state->set_ending_since(absl::ToUnixNanos(ending_since_));
  state->set_ended_at(absl::ToUnixNanos(ended_at_));
  for (MemberId member : untold_) state->add_untold(member.value());
  for (MemberId member : late_) state->add_untold(member.value());
}

absl::Status JobEnd::Load(const v1::CoordinatorState& state) {
  if (state.phase() > static_cast<uint32_t>(Phase::kEnded)) {
    return absl::InvalidArgumentError(absl::StrCat("phase is ", state.phase()));
  }
  phase_ = static_cast<Phase>(state.phase());
  outcome_ = absl::Status(static_cast<absl::StatusCode>(state.outcome()), state.failure());
  is_stopped_ = state.is_stopped();
  stop_reason_ = state.stop_reason();
  ending_since_ = absl::FromUnixNanos(state.ending_since());
  ended_at_ = absl::FromUnixNanos(state.ended_at());
  untold_.clear();
  late_.clear();
  for (const uint64_t member : state.untold()) {
    const MemberRecord* const record = members_.Find(MemberId(member));
    if (record == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("member ", member, ": there is none"));
    }
    (IsLive(record->state) ? untold_ : late_).insert(record->member);
  }
  return absl::OkStatus();
}

}  // namespace tessera
