// Who takes part. The coordinator makes plans; shards and policies count against the current one.
#ifndef TESSERA_COMMON_CONSISTENCY_PLAN_H_
#define TESSERA_COMMON_CONSISTENCY_PLAN_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/base/ids.h"

namespace tessera {

struct PlanMember {
  MemberId member;
  Rank rank;
  // The exchange from which on it takes part.
  Exchange first_exchange{1};
};

// Where members train parts of one model: a member that was removed, whose part in the rounds
// [first, until) nobody else has, as these were or will be cut with it.
struct DepartedSite {
  MemberId member;
  Rank rank;
  Exchange first{1};
  // The end of those rounds. 0: not agreed on yet.
  Exchange until;
};

// Parts of different sizes: from round `first` on, until other shares are in force, sites have parts
// in proportion to these.
struct PartShares {
  Exchange first{1};
  // Each member with its share, which is at least 1.
  std::vector<std::pair<MemberId, uint32_t>> of;
};

// Members in rank order; ranks are distinct but may have gaps.
struct Plan {
  Generation generation;
  std::vector<PlanMember> members;
  std::vector<DepartedSite> departed;
  // The shares in force, and any that will be. Empty: all parts are equal.
  std::vector<PartShares> shares;

  // The member's place in the plan; nullptr if it is no member.
  const PlanMember* Find(MemberId member) const {
    for (const PlanMember& m : members) {
      if (m.member == member) return &m;
    }
    return nullptr;
  }
};

// Exchanges are numbered below this: a job has no more minibatches.
constexpr uint64_t kExchangeEnd = uint64_t{1} << 40;

// Whether a coordinator may have made such a plan.
//   kInvalidArgument  members are not in rank order, or named twice; or a number is beyond its limit
absl::Status CheckPlan(const Plan& plan);

// The members whose parts `round` is cut into: those that have begun and departed ones that still count, by rank and
// then by member. The result is the same on every server that may fold a push of `round`.
std::vector<MemberId> SitesOf(const Plan& plan, Exchange round);

// How large the parts of these sites of `round` are, in proportion: all 1 where they are equal. A site that the
// shares in force leave out has as much as the others on average. The result is the same on every server, too.
std::vector<uint32_t> SharesOf(const Plan& plan, Exchange round,
                               const std::vector<MemberId>& sites);

}  // namespace tessera

#endif  // TESSERA_COMMON_CONSISTENCY_PLAN_H_
