// WorkerProcess: what can be wrong before anybody is told of it: memory, device, precision.
#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/layout/shard_map.h"
#include "common/rpc/transport.h"
#include "worker/exchange/device_sides.h"
#include "worker/model/plan.h"
#include "worker/replica/batch_rows.h"
#include "worker/replica/half_replica.h"
#include "worker/replica/replica.h"
#include "worker/rpc/device_memory.h"
#include "worker/rpc/update_coder.h"
#include "worker/worker_life.h"

namespace tessera {
namespace {

// The program itself, its libraries and its heap, and what oneDNN prepares. A connection to each server
// comes on top.
constexpr int64_t kProgramBytes = int64_t{40} << 20;
constexpr int64_t kCalibrationRowsMax = 2048;

}  // namespace

absl::Status WorkerProcess::CheckMemory() {
  const int64_t limit = job_.cluster().memory_limit();
  const int64_t servers = job_.cluster().servers().count();
  const int64_t shards = ShardCount(recipe_.placement, static_cast<int>(servers));
  const int64_t program =
      kProgramBytes +
      servers * LimitedConnectionBytes(shape_.size * static_cast<int64_t>(sizeof(float)) / shards);
  const int64_t data = data_->train.bytes() + data_->test.bytes();
  const InputRows input = InputRowsOf(job_.model(), *data_);
  const EvaluationRowCounts rows{std::min(data_->train.rows(), kCalibrationRowsMax),
                                 data_->test.rows()};
  const bool on_host = backend_->memory().host_addressable();
  if (limit > 0 && !on_host) {
    return absl::InvalidArgumentError(
        absl::StrCat("cluster.memory_limit: got ", limit, " bytes beside cluster.device \"",
                     job_.cluster().device(), "\", want 0: what the driver of a GPU takes of the ",
                     "host's memory is in no sum"));
  }
  int64_t replica = 0;
  std::string parts;
  if (recipe_.subnets) {
    // Both are held for a moment where the job ends on the whole model.
    int64_t whole = 0;
    if (recipe_.tail_steps > 0) {
      TESSERA_ASSIGN_OR_RETURN(
          whole, Replica::MemoryNeeded(job_, TailOf(recipe_), rows.calibration, input));
    }
    int64_t bytes_max = std::numeric_limits<int64_t>::max();
    if (limit > 0) bytes_max = limit - data - program - whole;
    if (!on_host) bytes_max = backend_->memory().available() - whole;
    TESSERA_ASSIGN_OR_RETURN(subnet_memory_,
                             PlanSubnetMemory(job_, recipe_, input, rows, bytes_max));
    replica = subnet_memory_.total() + whole;
    parts = subnet_memory_.Describe();
    if (whole > 0) absl::StrAppend(&parts, " + whole model at the end ", whole);
  } else if (limit > 0 || !on_host) {
    TESSERA_ASSIGN_OR_RETURN(
        replica, recipe_.split ? HalfReplica::MemoryNeeded(job_, recipe_, rows.calibration, input)
                               : Replica::MemoryNeeded(job_, recipe_, rows.calibration, input));
    parts = absl::StrCat("model, gradient, activations and batches ", replica);
    const int64_t coder = on_host ? UpdateCoder::MemoryNeeded(recipe_.codecs, shape_.size) : 0;
    if (coder > 0) absl::StrAppend(&parts, " + held back by codec.push ", coder);
    replica += coder;
  }
  if (!on_host) {
    // A subnet's payloads are no longer than the whole model's.
    const int64_t coding = DeviceCodingBytes(
        recipe_.codecs, DeviceSidesOf(recipe_, backend_->memory()), shape_, recipe_.core);
    if (coding > 0) absl::StrAppend(&parts, " + coding ", coding);
    TESSERA_ASSIGN_OR_RETURN(const int64_t scratch, DeviceScratch(rows.calibration));
    if (scratch > 0) absl::StrAppend(&parts, " + convolutions and calibration ", scratch);
    return CheckDeviceMemory(replica + coding + scratch, parts);
  }
  const int64_t need = data + replica + program;
  if (limit == 0 || need <= limit) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "cluster.memory_limit: is ", limit, " bytes, but this worker needs ", need, " = data ", data,
      " + ", parts, " + program and connections ", program, "; raise it"));
}

// What a device takes where the host, which reads inputs where they lie and has oneDNN, does not.
absl::StatusOr<int64_t> WorkerProcess::DeviceScratch(int64_t calibration_rows) const {
  TESSERA_ASSIGN_OR_RETURN(const NetworkPlan plan, PlanOf(job_.model()));
  TESSERA_ASSIGN_OR_RETURN(const Precision precision, PrecisionOf(job_.train().precision()));
  int64_t bytes = 0;
  for (const StagePlan& stage : plan.stages) {
    if (stage.kind != StagePlan::Kind::kConvolution) continue;
    const ImagesShape shape{BatchRowsMax(job_), stage.map};
    bytes = std::max(bytes, backend_->convolution().ScratchBytes(shape));
    if (precision != Precision::kBf16) continue;
    TESSERA_ASSIGN_OR_RETURN(const auto* const bf16, backend_->convolution_bf16());
    bytes = std::max(bytes, bf16->ScratchBytes(shape));
  }
  if (plan.constants > 0) {
    bytes += calibration_rows * shape_.inputs() * static_cast<int64_t>(sizeof(float));
  }
  return bytes;
}

absl::Status WorkerProcess::CheckDeviceMemory(int64_t replica, const std::string& parts) const {
  const int64_t available = backend_->memory().available();
  if (replica <= available) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "cluster.device: ", backend_->description(), " has ", available,
      " bytes free, but this worker needs ", replica, " = ", parts,
      "; use another GPU, fewer workers on this one, a smaller train.micro_batch, or cpu"));
}

absl::Status WorkerProcess::CheckPrecision() const {
  TESSERA_ASSIGN_OR_RETURN(const Precision precision, PrecisionOf(job_.train().precision()));
  if (precision == Precision::kTf32) return backend_->linear_tf32().status();
  if (precision == Precision::kBf16) return backend_->linear_bf16().status();
  return absl::OkStatus();
}

}  // namespace tessera
