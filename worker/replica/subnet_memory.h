// What a worker on subnets holds beside its data, by parts, and which of its ways of working fits.
#ifndef TESSERA_WORKER_REPLICA_SUBNET_MEMORY_H_
#define TESSERA_WORKER_REPLICA_SUBNET_MEMORY_H_

#include <cstdint>
#include <limits>
#include <string>

#include "absl/status/statusor.h"
#include "common/method/recipe.h"
#include "proto/job.pb.h"
#include "worker/model/streamed_network.h"
#include "worker/replica/batch_rows.h"

namespace tessera {

// How many rows an evaluation is about.
struct EvaluationRowCounts {
  int64_t calibration = 0;
  int64_t test = 0;  // of all workers
};

struct SubnetMemory {
  // A network of the whole model, held through the job. Otherwise its rows are read block by block.
  bool evaluates_whole = true;
  // The next round's subnet has memory of its own, and comes while this one's is sent. Otherwise it is
  // pulled into the arrays of the one that was sent, after the evaluation if there is one: that has
  // the memory of both meanwhile.
  bool pulls_apart = true;
  // How evaluations go through the model in blocks.
  StreamedNetwork::Options streamed;

  // Bytes.
  int64_t subnet = 0;      // parameters, gradients, activations, the optimizer's state
  int64_t pulled = 0;      // the next round's, where it is apart
  int64_t evaluation = 0;  // parameters or blocks, activations
  int64_t batches = 0;     // rows made into batches, scratch of sparse products

  // The most that is held at a time.
  int64_t total() const;
  // "subnet 1 + next subnet 2 + evaluation 3 + batches 4"
  std::string Describe() const;
};

// Plans the memory for the largest part that a cut among the job's workers may have. Among the ways that fit
// `bytes_max` it takes the one that reads the model least often, and among these the one that overlaps most; where none
// fits, the least, whose total() is larger. cluster.evaluation_memory bounds what an evaluation holds, too.
absl::StatusOr<SubnetMemory> PlanSubnetMemory(
    const v1::Job& job, const Recipe& recipe, const InputRows& input,
    const EvaluationRowCounts& rows, int64_t bytes_max = std::numeric_limits<int64_t>::max());

}  // namespace tessera

#endif  // TESSERA_WORKER_REPLICA_SUBNET_MEMORY_H_
