// What a worker needs of its machine's memory, or of its device's.
#ifndef TESSERA_WORKER_WORKER_MEMORY_H_
#define TESSERA_WORKER_WORKER_MEMORY_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "common/layout/parameters.h"
#include "common/method/recipe.h"
#include "common/rpc/windows.h"
#include "proto/job.pb.h"
#include "worker/data/dataset.h"
#include "worker/replica/subnet_memory.h"

namespace tessera {

struct WorkerMemory {
  int64_t data = 0;
  // What it trains, and for that: activations, batches, what a codec holds back.
  int64_t replica = 0;
  // "model, gradient, activations and batches 1 + held back by codec.push 2"
  std::string replica_parts;
  // The copy of its own state that is written to a checkpoint.
  int64_t checkpoint = 0;
  // The process itself and its connections.
  int64_t program = 0;
  // Windows as wide as the limit leaves room for; narrow ones where there is no limit, which nobody asks for then, and
  // where no window is planned (WindowPlan::following_bytes is 0).
  WindowPlan windows;
  // The sum's parts where subnets are trained.
  SubnetMemory subnets;

  int64_t total() const { return data + replica + checkpoint + program + windows.bytes(); }
  // "data 1 + model, ... 2 + checkpoints 3 + program and connections 4", and " + windows 5" where they are wide.
  std::string Describe() const;
};

// Rows that calibrate batch norm, and those that are scored.
EvaluationRowCounts RowsOfEvaluation(const Datasets& data);

// On a CPU, of a worker of a resolved job with this recipe and what it exchanges. Where subnets are trained as much as
// is of use, if that fits `bytes_max`, otherwise the least, whose total() may be larger. Codes as
// Replica::MemoryNeeded.
absl::StatusOr<WorkerMemory> PlanWorkerMemory(const v1::Job& job, const Recipe& recipe,
                                              const ModelShape& shape, const Datasets& data,
                                              int64_t bytes_max);

// The memory of a worker on a device with memory of its own, of which `device_bytes` are free: the replica is
// there alone, and what its coding takes comes on top.
absl::StatusOr<WorkerMemory> PlanDeviceWorkerMemory(const v1::Job& job, const Recipe& recipe,
                                                    const Datasets& data, int64_t device_bytes);

// The worker's sum has one place for the rows of a batch; these are the bytes that all places of BatchStaging take
// besides.
absl::StatusOr<int64_t> DeviceBatchBytes(const v1::Job& job, const Recipe& recipe,
                                         const Datasets& data);

}  // namespace tessera

#endif  // TESSERA_WORKER_WORKER_MEMORY_H_
