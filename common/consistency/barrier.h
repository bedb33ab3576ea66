// Barrier: an update is one push of every member, and nobody reads before it is committed.
//
//   OnPush     in rank order; the last expected push commits, so that the update is the mean
//              MakeBarrier           weight 1, scale 1 / folded
//              MakeWeightedBarrier   weighted by examples (example_mean.h)
//   MayRead    exchange `after` is committed
//
// Sums are formed in rank order, so that three and more workers give the same bits whatever the
// order of arrival. The mean divides by the pushes folded, not by the number of workers in the job.
//
// It does not matter here who rests (ConsistencyPolicy::SetResting): members that wait for each other rest together.
#ifndef TESSERA_COMMON_CONSISTENCY_BARRIER_H_
#define TESSERA_COMMON_CONSISTENCY_BARRIER_H_

#include <memory>

#include "common/consistency/policy.h"

namespace tessera {

std::unique_ptr<ConsistencyPolicy> MakeBarrier();
std::unique_ptr<ConsistencyPolicy> MakeWeightedBarrier();

}  // namespace tessera

#endif  // TESSERA_COMMON_CONSISTENCY_BARRIER_H_
