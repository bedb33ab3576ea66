// Membership: a job that is to end, and what servers are told when it does.
#include <string>

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
  ProposeNext();
}

void Membership::ReleaseDrain() {
  if (!drain_agreed_ || drain_released_) return;
  for (const MemberRecord* member : members_.Counted()) {
    if (member->drain_seen != drain_exchange_.value()) return;
  }
  drain_released_ = true;
  ++changes_;
  v1::PlanMessage message;
  message.set_withdraw(open_->agreement.number());
  open_.reset();
  SendToAll(message);
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
