#include "worker/replica/make_replica.h"

#include "worker/replica/half_replica.h"
#include "worker/replica/replica.h"
#include "worker/replica/subnet_replica.h"
#include "worker/replica/tailed_replica.h"

namespace tessera {

absl::StatusOr<std::unique_ptr<Learner>> MakeReplica(const v1::Job& job, const Recipe& recipe,
                                                     Rank rank, Exchange first, Backend* backend,
                                                     const InputRows& input,
                                                     const SubnetMemory& memory,
                                                     const LayerEnds& ends) {
  // A split names the layers of each rank, and no other method has one.
  if (recipe.split && recipe.split->is_linear(rank)) {
    return HalfReplica::CreateLinear(job, recipe, rank, backend, ends.receiver);
  }
  if (recipe.split) return HalfReplica::CreateFront(job, recipe, rank, backend, ends.sender);
  // Subnets first and the whole model at the end.
  if (recipe.tail_steps > 0) {
    return TailedReplica::Create(job, recipe, rank, first, backend, input, memory);
  }
  if (recipe.subnets) {
    return SubnetReplica::Create(job, recipe, rank, first, backend, input, memory);
  }
  return Replica::Create(job, recipe, rank, backend, input, first);
}

}  // namespace tessera
