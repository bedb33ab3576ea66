// The learner that a job's method wants.
#ifndef TESSERA_WORKER_REPLICA_MAKE_REPLICA_H_
#define TESSERA_WORKER_REPLICA_MAKE_REPLICA_H_

#include <memory>

#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "common/method/recipe.h"
#include "kernels/backend.h"
#include "proto/job.pb.h"
#include "worker/activations/activation_exchange.h"
#include "worker/replica/batch_rows.h"
#include "worker/replica/subnet_memory.h"
#include "worker/train/learner.h"

namespace tessera {

// How a half of the layers meets the other: one of the two, by rank. They outlive the learner.
struct LayerEnds {
  ActivationSender* sender = nullptr;
  ActivationReceiver* receiver = nullptr;
};

// A HalfReplica where workers train different layers. A SubnetReplica, which begins with the subnet of
// `first`, where the method trains subnets, a TailedReplica where it ends on the whole model; else a
// Replica. Codes as theirs. `memory` is of the subnets. `backend` outlives the learner.
absl::StatusOr<std::unique_ptr<Learner>> MakeReplica(const v1::Job& job, const Recipe& recipe,
                                                     Rank rank, Exchange first, Backend* backend,
                                                     const InputRows& input,
                                                     const SubnetMemory& memory = {},
                                                     const LayerEnds& ends = {});

}  // namespace tessera

#endif  // TESSERA_WORKER_REPLICA_MAKE_REPLICA_H_
