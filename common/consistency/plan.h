// Who takes part. The coordinator makes plans; shards and policies count against the current one.
#ifndef TESSERA_COMMON_CONSISTENCY_PLAN_H_
#define TESSERA_COMMON_CONSISTENCY_PLAN_H_

#include <vector>

#include "common/base/ids.h"

namespace tessera {

struct PlanMember {
  MemberId member;
  Rank rank;
  // It takes part from this exchange on.
  Exchange first_exchange{1};
};

// Members in rank order; ranks are distinct but may have gaps.
struct Plan {
  Generation generation;
  std::vector<PlanMember> members;

  // nullptr if it is no member.
  const PlanMember* Find(MemberId member) const {
    for (const PlanMember& m : members) {
      if (m.member == member) return &m;
    }
    return nullptr;
  }
};

}  // namespace tessera

#endif  // TESSERA_COMMON_CONSISTENCY_PLAN_H_
