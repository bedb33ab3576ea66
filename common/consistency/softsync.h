// Softsync: an update is the mean of s pushes, of whichever workers, and nobody waits.
//
//   OnPush     weight lambda(tau); the s-th push commits with scale 1 / folded
//   CommitDue  fewer than s are enough: members were removed, or all rest
//   MayRead    always
//
// s shrinks to the number of live members, so that few workers still move the model. One worker may
// fill several places. tau = version when applied - version pulled, of each push by itself; pushes
// of one update are equally old when they were pulled from the same version.
//
// Zhang, Gupta, Lian, Liu: Staleness-aware Async-SGD for distributed deep learning, IJCAI 2016.
#ifndef TESSERA_COMMON_CONSISTENCY_SOFTSYNC_H_
#define TESSERA_COMMON_CONSISTENCY_SOFTSYNC_H_

#include <cstdint>
#include <memory>

#include "common/consistency/policy.h"
#include "common/consistency/staleness_weight.h"

namespace tessera {

// Makes the policy. 1 <= pushes.
std::unique_ptr<ConsistencyPolicy> MakeSoftsync(int64_t pushes, StalenessWeight weight);

}  // namespace tessera

#endif  // TESSERA_COMMON_CONSISTENCY_SOFTSYNC_H_
