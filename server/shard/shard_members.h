// Those who push to a shard and read from it: the coordinator's plan of them, and how far each has come.
#ifndef TESSERA_SERVER_SHARD_SHARD_MEMBERS_H_
#define TESSERA_SERVER_SHARD_SHARD_MEMBERS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/ids.h"
#include "common/consistency/plan.h"
#include "common/consistency/policy.h"
#include "server/shard/shard_event.h"

namespace tessera {

// What the shard knows of one member.
struct ShardMember {
  Exchange first{1};
  Exchange accepted;  // last exchange accepted
  Exchange folded;    // last exchange folded
  // The exchange after whose folding it rests (ConsistencyPolicy::SetResting).
  std::optional<Exchange> rests_after = std::nullopt;
  uint64_t rest_number = 0;  // of its latest word
  // The first exchange of it that was pushed here and need not be in a copy.
  std::optional<Exchange> heard_from = std::nullopt;
};

// The shard's thread.
class ShardMembers {
 public:
  // Removed members that removed() has, and whose last fold Folded() has: the newest.
  static constexpr size_t kRemovedMax = 256;
  static constexpr size_t kDepartedMax = 4096;
  // A word of rest may be so many numbers ahead of the last one. A worker counts one by one.
  static constexpr uint64_t kRestsAheadMax = 64;

  // `policy` outlives it, and is told of the plan and of rests. `is_replica`: every server holds all entries.
  ShardMembers(ConsistencyPolicy* policy, bool is_replica)
      : policy_(*policy), is_replica_(is_replica) {}

  const Plan& plan() const { return plan_; }
  using States = absl::flat_hash_map<MemberId, ShardMember>;
  const States& states() const { return states_; }
  States& states() { return states_; }
  // nullptr: the plan does not have it.
  ShardMember* Find(MemberId member);
  // Why a push of somebody whom the plan does not have is refused: kFailedPrecondition, or kUnavailable where a
  // replica has no plan yet. Without `where` the caller's words come before.
  absl::Status NotMember(absl::string_view where) const;

  // `plan`, a newer one, counts from now on. Returns those whom it removes.
  std::vector<RemovedMember> SetPlan(const Plan& plan);
  // The members that any plan so far has removed.
  const std::deque<RemovedMember>& removed() const { return removed_; }

  // --- exchanges that are promised to members to come, until a plan or Withdraw settles it ---

  const std::vector<ProposeEvent>& proposals() const { return proposals_; }
  void Promise(const ProposeEvent& proposal) { proposals_.push_back(proposal); }
  // Proposals up to this number are void.
  void Withdraw(uint64_t proposal);

  // --- exchanges and rests ---

  // A push of `exchange` by `member` was accepted.
  void OnAccepted(MemberId id, Exchange exchange, ShardMember* member);
  // Tells the policy if the member has folded its last push before a rest: after every fold of one.
  void RestIfDue(MemberId id, const ShardMember& member);
  // See Shard::Rest.
  void Rest(MemberId id, Exchange after, IdleNotice word);

  // The last folded exchange of each, for replicas those of members that have gone among them.
  std::map<MemberId, Exchange> Folded() const;
  // A replica: a member that has gone had this exchange folded.
  void SetDepartedFolded(MemberId member, Exchange folded);

  // Puts into `image` what a standby must know of members, and takes it up again behind SetPlan.
  void TakeImage(ImageEvent* image) const;
  void SetImage(const ImageEvent& image);

 private:
  void Wake(MemberId id, ShardMember* member);
  static bool IsFarAhead(const ShardMember& member, IdleNotice word);

  ConsistencyPolicy& policy_;
  const bool is_replica_;
  Plan plan_;
  States states_;
  std::deque<RemovedMember> removed_;
  std::vector<ProposeEvent> proposals_;
  std::map<MemberId, Exchange> departed_;  // last folds, of a replica
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_SHARD_MEMBERS_H_
