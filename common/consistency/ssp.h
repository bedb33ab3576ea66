// Stale synchronous parallel: a fast worker may be ahead of the slowest by so many exchanges.
//
//   OnPush     weight as given, commits
//   MayRead    after - (least clock of all live members that do not rest) <= bound
//
// The clock of a member is its last folded exchange, before the first one its first exchange - 1.
// A read at clock c holds every update up to clock c - bound, and may hold newer ones. A member that
// rests (ConsistencyPolicy::SetResting) or was removed holds nobody up. One that joins late begins at the least clock.
// A member that wakes from a rest may find others further ahead than the bound: they wait for it from then on.
//
// Nobody waits for ever: a member at the least clock of all may always read, and exchanges have the
// same numbers on all servers, so that it is not made to wait on another one either.
//
// Ho et al.: More effective distributed ML via a stale synchronous parallel parameter server,
// NIPS 2013.
#ifndef TESSERA_COMMON_CONSISTENCY_SSP_H_
#define TESSERA_COMMON_CONSISTENCY_SSP_H_

#include <cstdint>
#include <memory>

#include "common/consistency/policy.h"

namespace tessera {

// Weighs every push by `weight`.  0 <= bound.
std::unique_ptr<ConsistencyPolicy> MakeSsp(int64_t bound, float weight);

}  // namespace tessera

#endif  // TESSERA_COMMON_CONSISTENCY_SSP_H_
