// How many members are gone with what their codec had held back of their updates: that is in no parameter.
//
// A job that goes on from a checkpoint takes up what was held back there, as its workers' files have it. What was held
// back by a rank that has no worker then is lost, too.
#ifndef TESSERA_SERVER_CONTROL_MEMBERS_LOST_RESIDUALS_H_
#define TESSERA_SERVER_CONTROL_MEMBERS_LOST_RESIDUALS_H_

#include <cstdint>

#include "proto/coordinator_state.pb.h"
#include "server/control/job_facts.h"
#include "server/control/members/member_table.h"
#include "server/control/members/start_list.h"
#include "server/control/members/starting_point.h"

namespace tessera {

// Without effect in a job whose codec holds nothing back.
class LostResiduals {
 public:
  // `facts` outlives it.
  explicit LostResiduals(const JobFacts& facts) : facts_(facts) {}

  uint64_t count() const { return count_; }

  // A member that was in `state` is gone with its residual.
  void OnLost(MemberState state) {
    if (!facts_.holds_back || !IsCounted(state)) return;
    ++count_;
    ++changes_;
  }
  // The job begins, or begins again, with the members that are here.
  void OnStart(const StartingPoint& start, const StartList& start_list, const MemberTable& members);

  uint64_t changes() const { return changes_; }
  void Save(v1::MembershipState* state) const { state->set_residuals_lost(count_); }
  void Load(const v1::MembershipState& state) { count_ = state.residuals_lost(); }

 private:
  const JobFacts& facts_;
  uint64_t count_ = 0;
  uint64_t changes_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_MEMBERS_LOST_RESIDUALS_H_
