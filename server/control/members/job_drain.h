// How the members of a job that is drained come to stop at the same exchange.
//
//   wanted    servers are asked for an exchange that all of them can promise (admission.h)
//   agreed    they have promised it, and hold what follows it. Each member hears of it with its next renewal
//   released  all members have heard: the promise ends, and everybody stops behind that exchange
//
// Where members advance on their own nobody waits for anybody: `released` follows `wanted`, and each stops where it is.
#ifndef TESSERA_SERVER_CONTROL_MEMBERS_JOB_DRAIN_H_
#define TESSERA_SERVER_CONTROL_MEMBERS_JOB_DRAIN_H_

#include <cstdint>

#include "common/base/ids.h"
#include "proto/coordinator_state.pb.h"
#include "server/control/members/member_table.h"

namespace tessera {

class JobDrain {
 public:
  bool wanted() const { return state_ != State::kNone; }
  bool released() const { return state_ == State::kReleased; }
  // The exchange behind which all members stop; 0 until it is agreed on.
  Exchange exchange() const { return exchange_; }
  // The member has come to where it stops.
  bool HasStopped(const MemberRecord& member) const {
    return released() && Exchange(member.progress.exchange()) >= exchange_;
  }

  void Want() { Enter(State::kWanted); }
  void Agree(Exchange exchange) {
    exchange_ = exchange;
    Enter(State::kAgreed);
  }
  // Releases without an agreement: each member stops where it is.
  void ReleaseAtOnce() {
    exchange_ = Exchange(1);
    Enter(State::kReleased);
  }
  // Releases an agreed drain once every member of the plan has heard of it. Whether it did so now.
  bool ReleaseIfAllHeard(const MemberTable& members);

  uint64_t changes() const { return changes_; }
  void Save(v1::MembershipState* state) const;
  void Load(const v1::MembershipState& state);

 private:
  enum class State { kNone, kWanted, kAgreed, kReleased };

  void Enter(State state) {
    state_ = state;
    ++changes_;
  }

  State state_ = State::kNone;
  Exchange exchange_;
  uint64_t changes_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_MEMBERS_JOB_DRAIN_H_
