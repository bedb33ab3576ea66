#include "worker/replica/tailed_replica.h"

#include "common/base/check.h"

namespace tessera {

absl::StatusOr<std::unique_ptr<TailedReplica>> TailedReplica::Create(
    const v1::Job& job, const Recipe& recipe, Rank rank, Exchange first, Backend* backend,
    const InputRows& input, const SubnetMemory& memory) {
  std::unique_ptr<TailedReplica> replica(new TailedReplica(job, recipe, rank, backend, input));
  TESSERA_ASSIGN_OR_RETURN(replica->subnets_,
                           SubnetReplica::Create(job, recipe, rank, first, backend, input, memory));
  return replica;
}

absl::Status TailedReplica::BeginTail() {
  // Made only now, as both hold much memory.
  TESSERA_CHECK(whole_ == nullptr);
  TESSERA_ASSIGN_OR_RETURN(whole_, Replica::Create(job_, tail_, rank_, &backend_, input_));
  return absl::OkStatus();
}

absl::Status TailedReplica::AdoptValues() {
  // The subnets go when the whole model's values are there.
  if (whole_ != nullptr) subnets_.reset();
  return now().AdoptValues();
}

}  // namespace tessera
