// Membership: a job that is to end, and what servers are told when it does.
#include <string>

#include "absl/strings/str_cat.h"
#include "server/control/membership.h"

namespace tessera {

void Membership::Drain() {
  if (drain_wanted_) return;
  drain_wanted_ = true;
  ++changes_;
  for (MemberRecord* waiting : members_.In(MemberState::kWaiting)) {
    Remove(waiting->member, MemberState::kLeft, "the job is ending");
  }
  if (open_ && open_->joiner != MemberId()) {
    Remove(open_->joiner, MemberState::kLeft, "the job is ending");
  }
  EndPause();
  EndHold();
  ProposeNext();
}

void Membership::CountLostResidual(MemberId member) {
  if (!facts_.holds_back || !IsCounted(members_.Find(member)->state)) return;
  ++residuals_lost_;
  ++changes_;
}

void Membership::OnTrainingOver() {
  training_over_ = true;
  ++changes_;
  EndPause();
}

void Membership::EndPause() {
  if (!paused_ || failure_) return;
  std::string lost;
  for (int i = 0; i < servers_.count(); ++i) {
    if (servers_.IsLost(ShardId(i))) {
      absl::StrAppend(&lost, lost.empty() ? "server " : ", server ", i);
    }
  }
  failure_ = absl::StrCat(
      lost, " was gone when the job was to end, with parameters of it; start the job again, ",
      "with checkpoint.restore it goes on from step ", saved_->manifest.step);
  ++changes_;
}

void Membership::ReleaseDrain() {
  if (!drain_agreed_ || drain_released_) return;
  for (const MemberRecord* member : members_.Counted()) {
    if (member->drain_seen != drain_exchange_.value()) return;
  }
  drain_released_ = true;
  WithdrawOpen();
}

void Membership::CloseServers(absl::string_view failure) {
  if (closed_) return;
  closed_ = true;
  ++changes_;
  closed_failure_ = std::string(failure);
  if (owners_) owners_->End(failure);
  open_.reset();
  v1::PlanMessage message;
  message.set_drain(true);
  message.set_failure(closed_failure_);
  SendToAll(message);
}

}  // namespace tessera
