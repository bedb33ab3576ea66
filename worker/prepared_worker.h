// What a worker has made ready before anybody is told of it, and keeps through all its memberships.
#ifndef TESSERA_WORKER_PREPARED_WORKER_H_
#define TESSERA_WORKER_PREPARED_WORKER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/checkpoint/checkpoint.h"
#include "common/layout/parameters.h"
#include "common/method/recipe.h"
#include "kernels/backend.h"
#include "proto/coordinator.pb.h"
#include "proto/job.pb.h"
#include "worker/data/dataset.h"
#include "worker/replica/subnet_memory.h"
#include "worker/worker_options.h"

namespace tessera {

// Constant once it is made, but for what is logged of the data.
struct PreparedWorker {
  // Everything that can be wrong before anybody is told of this worker: process limits, security, method, device,
  // precision, data, memory. The message of an error is for whoever started it.
  static absl::StatusOr<std::unique_ptr<PreparedWorker>> Create(const WorkerOptions& options,
                                                                const v1::Job& job);

  bool has_checkpoints() const {
    return !job.checkpoint().directory().empty() || !job.checkpoint().restore().empty();
  }
  bool has_standbys() const { return job.cluster().replicas() > 0; }
  // Logs what there is to say of the data, once.
  void LogNotes();
  // Whether rows were read as the checkpoint was trained; tells where they are others.
  //   kFailedPrecondition  labels or normalisation differ: the worker must be started again
  absl::Status CheckFacts(const Checkpoint& checkpoint, const v1::JoinReply& admission) const;

  v1::Job job;
  std::string digest;
  ModelShape shape;  // of what is exchanged
  Recipe recipe;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Datasets> data;
  uint64_t train_sum = 0;
  uint64_t test_sum = 0;
  SubnetMemory subnet_memory;  // where subnets are trained

 private:
  absl::Status LoadData();
  absl::Status CheckMemory();
  // The scratch that a device with memory of its own needs.
  absl::StatusOr<int64_t> DeviceScratch() const;
  absl::Status CheckDeviceMemory();
  absl::Status CheckPrecision() const;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_PREPARED_WORKER_H_
