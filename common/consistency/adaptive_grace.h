// For whom, and how long, an update stays open that enough members are in: learned from how fast each is.
//
//   time of a member   from the moment in which it could go on behind its last push to its next push. A mean in which
//                      the newest has a quarter and counts as at most twice the mean.
//   pace               the time of the `pushes`-th fastest member
//   waited for         members whose time is at most (1 + share) * pace, until they have taken so long, and at most
//                      share * pace behind the push that made the quorum; none of them longer than `most`, if that is
//                      not 0. A member whose time is not known yet counts as one that is fast.
//
// Members that are about as fast as the quorum are thus waited for, though they come last by turns, and slow ones are
// not. Until as many times are known as a quorum has pushes, as in a job's first round, all members are waited for, no
// longer than `most`, if that is not 0.
//
// An adaptive grace as such, in place of a fixed one: Decoupled DiLoCo, arXiv 2604.21428.
#ifndef TESSERA_COMMON_CONSISTENCY_ADAPTIVE_GRACE_H_
#define TESSERA_COMMON_CONSISTENCY_ADAPTIVE_GRACE_H_

#include <cstdint>
#include <map>
#include <optional>

#include "absl/time/time.h"
#include "common/base/ids.h"
#include "common/consistency/plan.h"
#include "common/consistency/policy.h"

namespace tessera {

class AdaptiveGrace {
 public:
  // 1 <= pushes, 0 <= most, 0 < share.
  AdaptiveGrace(int64_t pushes, absl::Duration most, double share);

  // Forgets who is not in the plan.
  void SetMembers(const Plan& plan);
  // What the member does until its next push is not training alone.
  void OnRest(MemberId member);
  // A push of the member, which goes on at once, or else when the round has closed.
  void OnPush(MemberId member, bool goes_on, absl::Time now);
  void OnQuorum(absl::Time now);
  void OnClose(absl::Time now);

  // Until when the round, which has its quorum, waits for this member.
  absl::Time WaitsUntil(MemberId member) const;

  // Adds the members' times to a policy's state, at a moment between two rounds. When each began is forgotten: the
  // clocks of two processes differ, and this one has to decide as one that loads the state.
  void Save(PolicyState* state);
  void Load(const PolicyState& state);

 private:
  struct Member {
    absl::Duration time;               // 0: not known yet
    std::optional<absl::Time> begins;  // when it could go on behind its last push, if that is known
    bool waits = false;                // for the round to close
  };

  const int64_t pushes_;
  const absl::Duration most_;
  const double share_;
  std::map<MemberId, Member> members_;
  absl::Time quorum_;    // when the open round had it
  absl::Duration pace_;  // at that time; 0: not known yet
};

}  // namespace tessera

#endif  // TESSERA_COMMON_CONSISTENCY_ADAPTIVE_GRACE_H_
