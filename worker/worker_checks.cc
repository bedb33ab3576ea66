// WorkerProcess: what can be wrong before anybody is told of it: memory, device, precision; and once it is known from
// which checkpoint the job goes on, how rows were read.
#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/model_facts.h"
#include "common/checkpoint/safetensors_reader.h"
#include "worker/data/load_datasets.h"
#include "worker/exchange/device_sides.h"
#include "worker/model/network_memory.h"
#include "worker/model/plan.h"
#include "worker/replica/batch_rows.h"
#include "worker/rpc/device_memory.h"
#include "worker/worker_life.h"
#include "worker/worker_memory.h"

namespace tessera {

absl::Status WorkerProcess::CheckMemory() {
  const int64_t limit = job_.cluster().memory_limit();
  if (!backend_->memory().host_addressable()) return CheckDeviceMemory();
  if (limit == 0 && !recipe_.subnets) return absl::OkStatus();
  TESSERA_ASSIGN_OR_RETURN(
      const WorkerMemory memory,
      PlanWorkerMemory(job_, recipe_, shape_, *data_,
                       limit > 0 ? limit : std::numeric_limits<int64_t>::max()));
  subnet_memory_ = memory.subnets;
  if (limit == 0 || memory.total() <= limit) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("cluster.memory_limit: is ", limit,
                                                 " bytes, but this worker needs ", memory.total(),
                                                 " = ", memory.Describe(), "; raise it"));
}

absl::Status WorkerProcess::CheckDeviceMemory() {
  if (job_.cluster().memory_limit() > 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cluster.memory_limit: got ", job_.cluster().memory_limit(),
        " bytes beside cluster.device \"", job_.cluster().device(),
        "\", want 0: what the driver of a GPU takes of the ", "host's memory is in no sum"));
  }
  const int64_t available = backend_->memory().available();
  TESSERA_ASSIGN_OR_RETURN(const WorkerMemory memory,
                           PlanDeviceWorkerMemory(job_, recipe_, *data_, available));
  subnet_memory_ = memory.subnets;
  std::string parts = memory.replica_parts;
  // A subnet's payloads are no longer than the whole model's.
  const int64_t coding = DeviceCodingBytes(
      recipe_.codecs, DeviceSidesOf(recipe_, backend_->memory()), shape_, recipe_.core);
  if (coding > 0) absl::StrAppend(&parts, " + coding ", coding);
  TESSERA_ASSIGN_OR_RETURN(const int64_t scratch,
                           DeviceScratch(RowsOfEvaluation(*data_).calibration));
  if (scratch > 0) absl::StrAppend(&parts, " + convolutions and calibration ", scratch);
  TESSERA_ASSIGN_OR_RETURN(const int64_t batches, DeviceBatchBytes(job_, recipe_, *data_));
  absl::StrAppend(&parts, " + batches on their way ", batches);
  const int64_t need = memory.replica + coding + scratch + batches;
  if (need <= available) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "cluster.device: ", backend_->description(), " has ", available,
      " bytes free, but this worker needs ", need, " = ", parts,
      "; use another GPU, fewer workers on this one, a smaller train.micro_batch, or cpu"));
}

// What a device takes where the host, which reads inputs where they lie and has oneDNN, does not.
absl::StatusOr<int64_t> WorkerProcess::DeviceScratch(int64_t calibration_rows) const {
  TESSERA_ASSIGN_OR_RETURN(const NetworkPlan plan, PlanOf(job_.model()));
  TESSERA_ASSIGN_OR_RETURN(const Precision precision, PrecisionOf(job_.train().precision()));
  TESSERA_ASSIGN_OR_RETURN(int64_t bytes,
                           DeviceScratchBytes(plan, BatchRowsMax(job_), precision, *backend_));
  if (plan.constants > 0) {
    bytes += calibration_rows * shape_.inputs() * static_cast<int64_t>(sizeof(float));
  }
  return bytes;
}

absl::Status WorkerProcess::CheckPrecision() const {
  TESSERA_ASSIGN_OR_RETURN(const Precision precision, PrecisionOf(job_.train().precision()));
  if (precision == Precision::kTf32) return backend_->linear_tf32().status();
  if (precision == Precision::kBf16) return backend_->linear_bf16().status();
  return absl::OkStatus();
}

absl::Status WorkerProcess::CheckFacts(const std::string& restored, const v1::Resume& resume) {
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint,
                           Checkpoint::Open(restored));
  TESSERA_ASSIGN_OR_RETURN(std::optional<ModelFacts> saved, ReadFacts(*checkpoint));
  const bool is_first = admission_.rank() == 0;
  if (!saved) {
    if (is_first) {
      Log(LogLevel::kWarning,
          absl::StrCat("checkpoint: an older build wrote it, which kept neither "
                       "labels nor normalisation; those of the training rows "
                       "named here are taken step=",
                       resume.step()));
    }
    return absl::OkStatus();
  }
  if (!saved->ReadsAs(data_->facts)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "checkpoint: \"", restored,
        "\" has other labels or another normalisation than this worker began to read its rows "
        "with; start it again"));
  }
  if (!resume.from_restore()) return absl::OkStatus();
  const bool is_local = job_.data().partition() == "local";
  if (is_local) {  // The rows of each rank are its own.
    TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<SafetensorsReader> own,
                             checkpoint->OpenWorker(admission_.rank()));
    if (own == nullptr) return absl::OkStatus();
    TESSERA_ASSIGN_OR_RETURN(saved, ReadFacts(*own));
  }
  if (saved && saved->train_sum != train_sum_ && (is_local || is_first)) {
    Log(LogLevel::kWarning,
        absl::StrCat("checkpoint: training rows are others than it was trained on; labels and "
                     "normalisation stay what they were step=",
                     resume.step()));
  }
  if (saved && is_first && NormalizesOtherwise(job_, *saved)) {
    Log(LogLevel::kWarning,
        absl::StrCat("checkpoint: data.normalize is not what it was trained with; its "
                     "normalisation is kept step=",
                     resume.step()));
  }
  return absl::OkStatus();
}

}  // namespace tessera
