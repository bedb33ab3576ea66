// Barrier: an update is one push of every member, and nobody reads before it is committed.
//
//   OnPush     weight 1, in rank order; the last expected push commits with scale 1 / folded
//   MayRead    exchange `after` is committed
//
// Sums are formed in rank order, so that three and more workers give the same bits whatever the
// order of arrival. The mean divides by the pushes folded, not by the number of workers in the job.
#ifndef TESSERA_COMMON_CONSISTENCY_BARRIER_H_
#define TESSERA_COMMON_CONSISTENCY_BARRIER_H_

#include <memory>

#include "common/consistency/policy.h"

namespace tessera {

std::unique_ptr<ConsistencyPolicy> MakeBarrier();

}  // namespace tessera

#endif  // TESSERA_COMMON_CONSISTENCY_BARRIER_H_
