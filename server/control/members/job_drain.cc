#include "server/control/members/job_drain.h"

namespace tessera {

bool JobDrain::ReleaseIfAllHeard(const MemberTable& members) {
  if (state_ != State::kAgreed) return false;
  for (const MemberRecord* member : members.Counted()) {
    if (member->drain_seen != exchange_.value()) return false;
  }
  Enter(State::kReleased);
  return true;
}

void JobDrain::Save(v1::MembershipState* state) const {
  state->set_drain_wanted(wanted());
  state->set_drain_agreed(state_ >= State::kAgreed);
  state->set_drain_released(released());
  state->set_drain_exchange(exchange_.value());
}

void JobDrain::Load(const v1::MembershipState& state) {
  state_ = state.drain_released() ? State::kReleased
           : state.drain_agreed() ? State::kAgreed
           : state.drain_wanted() ? State::kWanted
                                  : State::kNone;
  exchange_ = Exchange(state.drain_exchange());
}

}  // namespace tessera
