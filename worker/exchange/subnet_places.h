// Where a worker stands in the rounds of a job of subnets, as far as it knows by itself.
#ifndef TESSERA_WORKER_EXCHANGE_SUBNET_PLACES_H_
#define TESSERA_WORKER_EXCHANGE_SUBNET_PLACES_H_

#include "absl/status/status.h"
#include "common/base/ids.h"
#include "common/keyset/subnet.h"
#include "proto/job.pb.h"

namespace tessera {

// The place in round `first`, in a cut among the job's workers with a site each, by rank, and equal shares. Where the
// round is cut otherwise its first pull says so.
SubnetPlace FirstPlace(const v1::Job& job, Rank rank, Exchange first);

// The place in the round after that of `place`, if it is cut among the same sites.
SubnetPlace NextPlace(SubnetPlace place);

// kInvalidArgument: `place` has no unit of some group, so that its network would be cut through.
absl::Status CheckParts(const Subnet& subnet, const SubnetPlace& place);

}  // namespace tessera

#endif  // TESSERA_WORKER_EXCHANGE_SUBNET_PLACES_H_
