// Evaluation: to and from the coordinator's state.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/control/evaluation.h"

namespace tessera {

v1::EvaluationState Evaluation::Save() const {
  v1::EvaluationState state;
  state.set_open(open_);
  state.set_arriving(arriving_);
  state.set_plans_applied(plans_applied_);
  state.set_ending(ending_);
  state.set_evaluation(evaluation_);
  state.set_attempt(attempt_);
  state.set_due_step(due_step_);
  state.set_held(held_);
  for (const auto& [rank, seat] : seats_) {
    v1::EvaluationState::Seat& entry = *state.add_seats();
    entry.set_rank(static_cast<uint32_t>(rank.value()));
    entry.set_member(seat.member.value());
    entry.set_arrived(seat.arrived);
    entry.set_parked(seat.parked);
    entry.set_stage(seat.stage);
    *entry.mutable_arrival() = seat.arrival;
    entry.set_scored(seat.scored);
    *entry.mutable_scores() = seat.scores;
  }
  state.set_has_constants(has_constants_);
  state.set_constants(constants_);
  state.set_stop(stop_);
  *state.mutable_result() = result_;
  for (const v1::HistoryEntry& entry : history_) *state.add_history() = entry;
  for (const auto& [member, evaluation] : told_) {
    state.add_told_members(member.value());
    state.add_told(evaluation);
  }
  return state;
}

absl::Status Evaluation::Load(const v1::EvaluationState& state, const MemberTable& members) {
  open_ = state.open();
  arriving_ = state.arriving();
  plans_applied_ = state.plans_applied();
  ending_ = state.ending();
  evaluation_ = state.evaluation();
  attempt_ = state.attempt();
  due_step_ = state.due_step();
  held_ = state.held();
  seen_ = 0;
  seats_.clear();
  for (const v1::EvaluationState::Seat& entry : state.seats()) {
    const MemberId member(entry.member());
    // Of one that is over they may be forgotten.
    const bool is_known =
        members.Find(member) != nullptr || (!open_ && members.IsForgotten(member));
    if (!is_known || !v1::EvaluateStage_IsValid(entry.stage()) ||
        entry.scores().precision_hits_size() > static_cast<int>(std::size(kPrecisionAt))) {
      return absl::InvalidArgumentError(absl::StrCat("member ", member.value(),
                                                     " evaluates in stage ", entry.stage(),
                                                     ", and there is no such member or stage"));
    }
    Seat& seat = seats_[Rank(entry.rank())];
    seat.member = member;
    seat.arrived = entry.arrived();
    seat.parked = entry.parked();
    seat.stage = entry.stage();
    seat.arrival = entry.arrival();
    seat.scored = entry.scored();
    seat.scores = entry.scores();
  }
  if (open_ && seats_.empty()) {
    return absl::InvalidArgumentError("an evaluation is open, and nobody evaluates");
  }
  has_constants_ = state.has_constants();
  constants_ = state.constants();
  stop_ = state.stop();
  result_ = state.result();
  history_.assign(state.history().begin(), state.history().end());
  if (stop_ && history_.empty()) {
    return absl::InvalidArgumentError("training has ended, and nothing was evaluated");
  }
  told_.clear();
  for (int i = 0; i < std::min(state.told_members_size(), state.told_size()); ++i) {
    told_[MemberId(state.told_members(i))] = state.told(i);
  }
  replies_.clear();
  return absl::OkStatus();
}

void Evaluation::Reconnect() {
  for (auto& [rank, seat] : seats_) seat.parked = false;
}

}  // namespace tessera
