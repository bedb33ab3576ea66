// The pushes that a shard has accepted and not folded yet, and the places of those that are still arriving.
#ifndef TESSERA_SERVER_SHARD_PUSH_STAGE_H_
#define TESSERA_SERVER_SHARD_PUSH_STAGE_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/base/ids.h"
#include "common/consistency/plan.h"
#include "common/consistency/policy.h"
#include "server/shard/forms/exchange_form.h"

namespace tessera {

// The shard's thread.
class PushStage {
 public:
  // `policy` and `plan` outlive it. `bytes_max`: what may wait beside the push whose turn is next, which takes
  // `slice_bytes` at most.
  PushStage(const ConsistencyPolicy* policy, const Plan* plan, int64_t bytes_max,
            int64_t slice_bytes)
      : policy_(*policy), plan_(*plan), bytes_max_(bytes_max), slice_bytes_(slice_bytes) {}

  // --- places ---

  // True if a push of `bytes` from `member` may start to arrive: it is the next to be folded, which always has a
  // place, or `has_place` for another reason, or it fits under the limit.
  //
  // Under a barrier others than the next never have more than the limit, but for one push more for a moment: where a
  // plan puts somebody in front of the next in order, that one keeps its place.
  bool Reserve(MemberId member, int64_t bytes, bool has_place);
  void Release(MemberId member, int64_t bytes);
  int64_t reserved_bytes() const { return reserved_bytes_; }
  // How many members' turns come before this one's, where the order matters; 0 elsewhere.
  int64_t PushesBefore(MemberId member) const;

  // --- pushes ---

  void Add(StagedPush push);
  // The push whose turn it is; nullptr: it is not here. Valid until the next change.
  const StagedPush* Next() const;
  // That push, which there is, leaves.
  StagedPush TakeNext();
  // Drops pushes for which drops(push) is true.
  template <typename Drops>
  void DropIf(Drops drops) {
    const auto end = std::stable_partition(pushes_.begin(), pushes_.end(),
                                           [&](const StagedPush& push) { return !drops(push); });
    for (auto push = end; push != pushes_.end(); ++push) bytes_ -= push->payload.size();
    pushes_.erase(end, pushes_.end());
  }
  // Complete pushes, in order of arrival, and the bytes of their payloads.
  const std::deque<StagedPush>& pushes() const { return pushes_; }
  int64_t bytes() const { return bytes_; }
  // The members whose pushes are missing here: neither folded nor staged.
  std::vector<MemberId> WaitsFor() const;

 private:
  int64_t OwnBytes(MemberId next) const;
  std::deque<StagedPush>::const_iterator FindNext() const;

  const ConsistencyPolicy& policy_;
  const Plan& plan_;
  const int64_t bytes_max_;
  const int64_t slice_bytes_;
  std::deque<StagedPush> pushes_;
  int64_t bytes_ = 0;
  absl::flat_hash_map<MemberId, int64_t> reserved_;
  int64_t reserved_bytes_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_PUSH_STAGE_H_
