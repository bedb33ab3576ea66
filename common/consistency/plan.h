// Who takes part. The coordinator makes plans; shards and policies count against the current one.
#ifndef TESSERA_COMMON_CONSISTENCY_PLAN_H_
#define TESSERA_COMMON_CONSISTENCY_PLAN_H_

#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/ids.h"

namespace tessera {

struct PlanMember {
  MemberId member;
  Rank rank;
  // It takes part from this exchange on.
  Exchange first_exchange{1};
};

// Where members train parts of one model: a member that was removed, whose part in the rounds
// [first, until) nobody else has, as these were or will be cut with it.
struct FormerSite {
  MemberId member;
  Rank rank;
  Exchange first{1};
  // 0: not agreed on yet.
  Exchange until;
};

// Members in rank order; ranks are distinct but may have gaps.
struct Plan {
  Generation generation;
  std::vector<PlanMember> members;
  std::vector<FormerSite> former;

  // nullptr if it is no member.
  const PlanMember* Find(MemberId member) const {
    for (const PlanMember& m : members) {
      if (m.member == member) return &m;
    }
    return nullptr;
  }
};

// Whose parts `round` is cut into: members that have begun and former ones that still count, by rank
// and then by member. The same on every server that may fold a push of `round`.
inline std::vector<MemberId> SitesOf(const Plan& plan, Exchange round) {
  std::vector<std::pair<Rank, MemberId>> order;
  for (const PlanMember& m : plan.members) {
    if (m.first_exchange <= round) order.push_back({m.rank, m.member});
  }
  for (const FormerSite& m : plan.former) {
    const bool has_ended = m.until != Exchange(0) && m.until <= round;
    if (m.first <= round && !has_ended) order.push_back({m.rank, m.member});
  }
  std::sort(order.begin(), order.end());
  std::vector<MemberId> sites;
  sites.reserve(order.size());
  for (const auto& [rank, member] : order) sites.push_back(member);
  return sites;
}

}  // namespace tessera

#endif  // TESSERA_COMMON_CONSISTENCY_PLAN_H_
