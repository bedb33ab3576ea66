#include "worker/worker_memory.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/layout/shard_map.h"
#include "common/rpc/transport.h"
#include "worker/data/order.h"
#include "worker/model/batch_staging.h"
#include "worker/model/plan.h"
#include "worker/replica/batch_rows.h"
#include "worker/replica/half_replica.h"
#include "worker/replica/replica.h"
#include "worker/rpc/update_coder.h"

namespace tessera {
namespace {

// The program itself, its libraries and its heap, and what oneDNN prepares. A connection to each server
// comes on top.
constexpr int64_t kProgramBytes = int64_t{40} << 20;
constexpr int64_t kCalibrationRowsMax = 2048;

// Adds the replica to `memory`. Of subnets one that fits what is left of `bytes_max` beside `others`.
absl::Status AddReplica(const v1::Job& job, const Recipe& recipe, const Datasets& data,
                        int64_t others, int64_t bytes_max, WorkerMemory* memory) {
  const InputRows input = InputRowsOf(job.model(), data);
  const EvaluationRowCounts rows = RowsOfEvaluation(data);
  if (!recipe.subnets) {
    TESSERA_ASSIGN_OR_RETURN(memory->replica,
                             recipe.split
                                 ? HalfReplica::MemoryNeeded(job, recipe, rows.calibration, input)
                                 : Replica::MemoryNeeded(job, recipe, rows.calibration, input));
    memory->replica_parts =
        absl::StrCat("model, gradient, activations and batches ", memory->replica);
    return absl::OkStatus();
  }
  // Subnet and whole model are both held for a moment where the job ends on the whole model.
  int64_t whole = 0;
  if (recipe.tail_steps > 0) {
    TESSERA_ASSIGN_OR_RETURN(whole,
                             Replica::MemoryNeeded(job, TailOf(recipe), rows.calibration, input));
  }
  TESSERA_ASSIGN_OR_RETURN(memory->subnets,
                           PlanSubnetMemory(job, recipe, input, rows, bytes_max - others - whole));
  memory->replica = memory->subnets.total() + whole;
  memory->replica_parts = memory->subnets.Describe();
  if (whole > 0) absl::StrAppend(&memory->replica_parts, " + whole model at the end ", whole);
  return absl::OkStatus();
}

// What a checkpoint copies of the optimizer's states, of the replica and of what the codec holds back. `shape` is what
// is exchanged.
absl::StatusOr<int64_t> CheckpointBytes(const v1::Job& job, const Recipe& recipe,
                                        const ModelShape& shape) {
  if (job.checkpoint().directory().empty()) return 0;
  if (recipe.subnets) {
    return recipe.tail_steps > 0 ? Replica::PrivateStateBytes(job, TailOf(recipe)) : 0;
  }
  TESSERA_ASSIGN_OR_RETURN(int64_t bytes, Replica::PrivateStateBytes(job, recipe));
  if (recipe.codecs.holds_back()) bytes += shape.size * static_cast<int64_t>(sizeof(float));
  return bytes;
}

}  // namespace

std::string WorkerMemory::Describe() const {
  return absl::StrCat("data ", data, " + ", replica_parts, " + checkpoints ", checkpoint,
                      " + program and connections ", program,
                      windows.bytes() > 0 ? absl::StrCat(" + windows ", windows.bytes()) : "");
}

EvaluationRowCounts RowsOfEvaluation(const Datasets& data) {
  return {std::min(data.train.rows(), kCalibrationRowsMax), data.test.rows()};
}

absl::StatusOr<WorkerMemory> PlanWorkerMemory(const v1::Job& job, const Recipe& recipe,
                                              const ModelShape& shape, const Datasets& data,
                                              int64_t bytes_max) {
  WorkerMemory memory;
  const int64_t servers = job.cluster().servers().count();
  const int64_t shard_bytes =
      LargestShardBytes(shape, ShardingOf(recipe, static_cast<int>(servers)));
  memory.program = kProgramBytes + servers * LimitedConnectionBytes(shard_bytes);
  memory.data =
      data.train.bytes() + data.test.bytes() + EpochOrder::MemoryNeeded(data.train.rows());
  TESSERA_ASSIGN_OR_RETURN(memory.checkpoint, CheckpointBytes(job, recipe, shape));
  const int64_t others = memory.data + memory.checkpoint + memory.program;
  TESSERA_RETURN_IF_ERROR(AddReplica(job, recipe, data, others, bytes_max, &memory));
  const int64_t coder = recipe.subnets ? 0 : UpdateCoder::MemoryNeeded(recipe.codecs, shape.size);
  if (coder > 0) absl::StrAppend(&memory.replica_parts, " + held back by codec.push ", coder);
  memory.replica += coder;
  // Workers that have batches from each other have connections that are in no sum here: their windows stay narrow.
  if (!recipe.split) memory.windows.Add(servers, shard_bytes);
  if (bytes_max < std::numeric_limits<int64_t>::max()) {
    memory.windows.Choose(bytes_max - memory.total());
  }
  return memory;
}

absl::StatusOr<WorkerMemory> PlanDeviceWorkerMemory(const v1::Job& job, const Recipe& recipe,
                                                    const Datasets& data, int64_t device_bytes) {
  WorkerMemory memory;
  TESSERA_RETURN_IF_ERROR(AddReplica(job, recipe, data, 0, device_bytes, &memory));
  return memory;
}

absl::StatusOr<int64_t> DeviceBatchBytes(const v1::Job& job, const Recipe& recipe,
                                         const Datasets& data) {
  TESSERA_ASSIGN_OR_RETURN(const NetworkPlan plan, PlanOf(job.model()));
  const int64_t inputs = InputRowsOf(job.model(), data).sparse ? 0 : plan.shape.inputs();
  const int64_t kinds = data.train.has_classes() ? data.train.places() : plan.shape.outputs();
  const auto place = [&](int64_t rows, int64_t width) {
    return rows * (width + kinds) * static_cast<int64_t>(sizeof(float));
  };
  const int64_t evaluated = place(BatchRowsMax(job), inputs);
  const int64_t others = (BatchStaging::kPlaces - 1) * evaluated;
  if (recipe.split) {
    TESSERA_ASSIGN_OR_RETURN(const NetworkPlan front, HalfOf(plan, {0, recipe.split->cut.layer}));
    const int64_t width = std::max(inputs, front.shape.outputs());
    return others + BatchStaging::kPlaces * place(job.train().batch_size(), width);
  }
  // A subnet trains in a network of its own.
  if (recipe.subnets) return others + BatchStaging::kPlaces * place(PieceRows(job), inputs);
  return others;
}

}  // namespace tessera
