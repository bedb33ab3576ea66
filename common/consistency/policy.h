// When is a push applied, and who waits? The answers are arithmetic: a policy is a state machine
// without I/O, clock or lock, so that any schedule can be tried on it and a simulator runs the very
// same object.
#ifndef TESSERA_COMMON_CONSISTENCY_POLICY_H_
#define TESSERA_COMMON_CONSISTENCY_POLICY_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "common/base/ids.h"
#include "common/consistency/plan.h"

namespace tessera {

struct PushFacts {
  MemberId member;
  Exchange exchange;
  // The shard's version that the worker had pulled, and the one it has now. base <= now.
  Version base;
  Version now;
  // Rows that the update was computed from.
  uint64_t examples = 0;
  // The time at which it is folded.
  absl::Time time{};
};

struct Verdict {
  // The push's weight: pending += weight * decode(payload).
  float weight = 1;
  // The push completes an update: the rule is applied to pending, and the version grows by one.
  bool commit = false;
  // The number that pending is multiplied by when it is applied (1 / number of folded pushes for a mean).
  float commit_scale = 1;
};

// What a policy that has just been told of its members must know to go on as another one, at a moment when
// no update is half collected. Rests are told apart.
struct PolicyState {
  Exchange next;                 // the exchange that is collected next, where there is such a thing
  std::vector<uint64_t> counts;  // the policy's own
  std::map<MemberId, uint64_t> members;
};

// The policy of one shard. All calls come from the shard's thread.
class ConsistencyPolicy {
 public:
  virtual ~ConsistencyPolicy() = default;

  // The plan that counts from now on. Removal holds at once. An update that only waited for a
  // removed member is committed by the shard through CommitDue.
  virtual void SetMembers(const Plan& plan) = 0;

  // The member whose push is folded next, where the order matters (so that sums are the same bits on every run);
  // nullopt: any push, in the order of arrival.
  virtual std::optional<MemberId> NextInOrder() const = 0;

  // Decides what becomes of `push`, which is complete, new and of a member, and whose turn has come. Called once
  // per push.
  virtual Verdict OnPush(const PushFacts& push) = 0;

  // The scale with which pending must be committed although no push came, because a member was removed or rests,
  // or the time has come; nullopt: it need not be.
  virtual std::optional<float> CommitDue(absl::Time now) = 0;

  // The time at which CommitDue may have a scale without another event.
  virtual std::optional<absl::Time> Deadline() const { return std::nullopt; }

  // Tells that `member` has folded its last push before an evaluation or its end, and makes none until it wakes:
  // nobody may wait for it. A push of it wakes it, too. Under a barrier all members rest together, so that there
  // is nothing to do.
  virtual void SetResting(MemberId member, bool resting) {}

  // The first exchange that a member who is added now can make; `wanted` or a later one. 0 < it.
  virtual Exchange FirstExchange(Exchange wanted) const { return wanted; }

  // Whether a member that has pushed exchange `after` may read now. Its own pushes are folded before its reads.
  virtual bool MayRead(MemberId member, Exchange after) const = 0;

  // Under a barrier, the exchange that is being collected now; 0 where members advance on their
  // own.
  virtual Exchange Collecting() const = 0;

  // The members whose pushes others wait for.
  virtual std::vector<MemberId> WaitsFor() const = 0;

  // The state that a standby needs; nothing for a policy that keeps nothing beside its members and their rests. What
  // is not in it this policy forgets as well, so that both decide alike from here on.
  virtual PolicyState State() { return {}; }
  // Takes up a state that State gave; called after SetMembers. Members that are not in the plan are passed over.
  virtual void SetState(const PolicyState& state) {}
};

}  // namespace tessera

#endif  // TESSERA_COMMON_CONSISTENCY_POLICY_H_
