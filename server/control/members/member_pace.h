// How far the members of a job are, and how fast.
#ifndef TESSERA_SERVER_CONTROL_MEMBERS_MEMBER_PACE_H_
#define TESSERA_SERVER_CONTROL_MEMBERS_MEMBER_PACE_H_

#include <cstdint>

#include "common/base/ids.h"
#include "server/control/members/member_table.h"

namespace tessera {

// The furthest exchange that any member, live or ended, has said that it made.
Exchange HighestExchange(const MemberTable& members);

// The step and the exchange that the last of the members in the plan has made. Where there is no member, those that
// another one goes on from.
uint64_t LeastStep(const MemberTable& members);
Exchange LeastExchange(const MemberTable& members);

// A share of `local_steps` in proportion to the member's speed, all of them for the fastest; at least 1. 0 while its
// speed is not known.
// Liu, Chhaparia, Douillard et al.: Asynchronous Local-SGD Training for Language Modeling, 2024, dynamic local updates.
uint64_t StepBudget(const MemberTable& members, MemberId member, int64_t local_steps);

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_MEMBERS_MEMBER_PACE_H_
