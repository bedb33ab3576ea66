// Members that are gone and whose last push only some shards have counted.
//
// When a member is removed, each server says with the plan that it has applied which exchange of the member it counted
// last. Where servers differ, some shards have a push that others lack: the status counts these members.
#ifndef TESSERA_SERVER_CONTROL_MEMBERS_PARTIAL_PUSHES_H_
#define TESSERA_SERVER_CONTROL_MEMBERS_PARTIAL_PUSHES_H_

#include <cstdint>

#include "common/base/ids.h"
#include "proto/coordinator.pb.h"
#include "proto/coordinator_state.pb.h"
#include "server/control/members/member_table.h"

namespace tessera {

class PartialPushes {
 public:
  // `members` outlives the count.
  explicit PartialPushes(MemberTable* members) : members_(*members) {}

  // A shard that is taken over may have lost such a push since.
  uint64_t count() const;

  // What `server` says of a member that it removed.
  void OnRemoved(const v1::PlanApplied::Removed& removed, ShardId server);
  // What `server`, which is lost, has yet to say it never will.
  void OnServerLost(ShardId server);
  // The records of all members are about to be emptied of what servers counted: keeps their number.
  void KeepCount() { earlier_ = count(); }
  // The record of this member is about to be dropped.
  void Forget(const MemberRecord& member) { earlier_ += member.has_partial_push(); }

  uint64_t changes() const { return changes_; }
  void Save(v1::MembershipState* state) const { state->set_partial_pushes(earlier_); }
  void Load(const v1::MembershipState& state) { earlier_ = state.partial_pushes(); }

 private:
  MemberTable& members_;
  uint64_t earlier_ = 0;  // of members whose records no longer tell
  uint64_t changes_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_MEMBERS_PARTIAL_PUSHES_H_
