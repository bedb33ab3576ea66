// The checkpoint that the members of a job begin from, and the one that the job would go back to.
//
// A job without checkpoint.restore begins from nothing, at exchange 1. Whenever it goes back it begins again, from the
// last whole checkpoint: servers are ordered to read it, and members begin with the exchange after it.
#ifndef TESSERA_SERVER_CONTROL_MEMBERS_STARTING_POINT_H_
#define TESSERA_SERVER_CONTROL_MEMBERS_STARTING_POINT_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "common/base/ids.h"
#include "proto/coordinator.pb.h"
#include "proto/coordinator_state.pb.h"
#include "server/control/exchange_steps.h"
#include "server/control/job_facts.h"
#include "server/control/members/member_table.h"
#include "server/control/saved_job.h"
#include "server/control/saved_states.h"
#include "server/control/members/server_table.h"

namespace tessera {

class StartingPoint {
 public:
  // `facts` outlives it.
  explicit StartingPoint(const JobFacts& facts) : facts_(facts), saved_(facts.restored) {}

  // Where the job would go back to when a server is lost; nullptr: nowhere.
  const SavedState* saved() const { return saved_.get(); }
  void SetSaved(std::shared_ptr<const SavedState> saved) {
    saved_ = std::move(saved);
    ++changes_;
  }
  // The job begins from saved(), which is not nullptr; servers read it under `generation`.
  void GoBack(Generation generation);

  // The checkpoint that members begin from; nullptr: none.
  const SavedState* begun_from() const { return begun_from_.get(); }
  // SumOf its manifest.
  uint64_t begun_from_sum() const { return begun_from_sum_; }
  // The generation under which servers were last ordered to read a checkpoint; 0: they never were.
  Generation generation() const { return generation_; }
  // The order for servers. There is one: generation() is not 0.
  v1::RestoreOrder Order() const;

  // The first exchange of those that begin together.
  Exchange first_exchange() const;
  // Which steps exchanges end at: for all members; where they advance on their own, for whoever was furthest behind
  // when the checkpoint was made.
  ExchangeSteps steps() const;
  // Sets at which exchange and step a member of the first plan begins.
  void BeginMember(MemberRecord* member) const;

  // Rows that the member has trained on since the job began or went back.
  uint64_t ExamplesOf(const MemberRecord& member) const;
  // Rows that all members trained on before that, as far as their work is in the parameters.
  uint64_t examples_before() const;
  // The furthest exchange that is known to be in the parameters, or under way. In lockstep one member's word alone
  // moves it by a bounded number of exchanges.
  Exchange Reached(const MemberTable& members, const ServerTable& servers) const;
  // As much of `step`, the furthest that a member says it has come to, as all pushes that servers have counted allow.
  uint64_t StepReached(uint64_t step, const ServerTable& servers) const;
  // kInvalidArgument: a member that advances on its own says that its file of a checkpoint holds more steps than it can
  // have made.
  absl::Status CheckSavedStep(uint64_t step, const ServerTable& servers) const;

  uint64_t changes() const { return changes_; }
  void Save(SavedStates* saved, v1::MembershipState* state) const;
  //   kInvalidArgument  it names a checkpoint that the state has not
  absl::Status Load(const v1::MembershipState& state, const SavedStates& saved);

 private:
  // The step of whoever was furthest in the checkpoint that the job began from.
  uint64_t FurthestBegun() const;

  const JobFacts& facts_;
  std::shared_ptr<const SavedState> saved_;
  std::shared_ptr<const SavedState> begun_from_;
  uint64_t begun_from_sum_ = 0;
  Generation generation_;
  uint64_t changes_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_MEMBERS_STARTING_POINT_H_
