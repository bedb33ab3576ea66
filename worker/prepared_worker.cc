#include "worker/prepared_worker.h"

#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/process_limits.h"
#include "common/checkpoint/model_facts.h"
#include "common/checkpoint/safetensors_reader.h"
#include "common/config/checkpoint_keys.h"
#include "common/config/job_digest.h"
#include "common/rpc/security.h"
#include "common/rpc/transport.h"
#include "worker/data/load_datasets.h"
#include "worker/exchange/device_sides.h"
#include "worker/model/network_memory.h"
#include "worker/model/plan.h"
#include "worker/replica/batch_rows.h"
#include "worker/rpc/device_memory.h"
#include "worker/worker_memory.h"
#include "worker/worker_needs.h"

namespace tessera {

absl::StatusOr<std::unique_ptr<PreparedWorker>> PreparedWorker::Create(const WorkerOptions& options,
                                                                       const v1::Job& job) {
  TESSERA_RETURN_IF_ERROR(CheckProcessLimits(WorkerNeeds(job)));
  TESSERA_RETURN_IF_ERROR(UseSecurity(FilesOf(job.security())));
  auto worker = std::make_unique<PreparedWorker>();
  worker->job = job;
  worker->digest = JobDigest(job);
  TESSERA_ASSIGN_OR_RETURN(worker->recipe, RecipeFor(job));
  TESSERA_ASSIGN_OR_RETURN(worker->shape, ExchangedShape(job.model(), worker->recipe));
  if (job.cluster().coordinator().etcd().empty() && options.coordinator.empty() &&
      job.cluster().servers().addresses().empty()) {
    return absl::InvalidArgumentError(
        "--coordinator: not given, and cluster.servers is only a count; list the servers' "
        "host:port there, or use `tessera run`");
  }
  // A caller's own model computes where it will; the exchange is the CPU's.
  const bool is_own = options.own_model != nullptr;
  TESSERA_ASSIGN_OR_RETURN(worker->backend,
                           options.make_backend(is_own ? "cpu" : job.cluster().device(),
                                                job.cluster().threads(), {job.cluster().cudnn()}));
  if (!is_own) TESSERA_RETURN_IF_ERROR(worker->CheckPrecision());
  if (job.has_data()) {
    TESSERA_RETURN_IF_ERROR(worker->LoadData());
  } else {
    worker->data = std::make_unique<Datasets>(NoRows());
  }
  if (!is_own) TESSERA_RETURN_IF_ERROR(worker->CheckMemory());
  return worker;
}

absl::Status PreparedWorker::LoadData() {
  const int64_t limit = job.cluster().memory_limit();
  if (limit > 0) LimitMemory();
  const std::optional<ModelFacts> saved = FactsToGoOnFrom(job.checkpoint().restore());
  absl::StatusOr<Datasets> loaded = LoadDatasets(job.data(), EndsOf(job.model(), shape),
                                                 limit > 0 ? limit : DatasetBytesMaxHere(),
                                                 saved ? &*saved : nullptr, ReadingPlanOf(job));
  if (absl::IsResourceExhausted(loaded.status())) {
    return absl::ResourceExhaustedError(absl::StrCat(
        loaded.status().message(),
        limit > 0 ? "; cluster.memory_limit is all that this worker may take"
                  : "; this machine or container has no more memory; use a larger one, or give "
                    "each worker its part of the rows (data.partition: local), or set data.memory, "
                    "where the format's rows can be read one by one"));
  }
  if (!loaded.ok()) return loaded.status();
  data = std::make_unique<Datasets>(*std::move(loaded));
  train_sum = data->train.Sum();
  test_sum = data->test.Sum();
  data->facts.train_sum = train_sum;
  return absl::OkStatus();
}

void PreparedWorker::LogNotes() {
  for (const std::string& note : data->notes) {
    Log(LogLevel::kWarning, absl::StrCat("worker: ", note));
  }
  data->notes.clear();
}

absl::Status PreparedWorker::CheckMemory() {
  const int64_t limit = job.cluster().memory_limit();
  if (!backend->memory().host_addressable()) return CheckDeviceMemory();
  if (limit == 0 && !recipe.subnets) return absl::OkStatus();
  TESSERA_ASSIGN_OR_RETURN(
      const WorkerMemory memory,
      PlanWorkerMemory(job, recipe, shape, *data,
                       limit > 0 ? limit : std::numeric_limits<int64_t>::max()));
  subnet_memory = memory.subnets;
  if (limit == 0) return absl::OkStatus();
  // What the rows and the model leave is known now, and no connection is open yet.
  UseRoom(memory.windows);
  if (memory.total() <= limit) {
    Log(LogLevel::kInfo,
        absl::StrCat("worker: memory limited bytes=", limit, " planned=", memory.total(),
                     " windows=", NameOf(memory.windows.kind()),
                     " freed=", memory.windows.keeps_freed() ? "kept" : "returned"));
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("cluster.memory_limit: is ", limit,
                                                 " bytes, but this worker needs ", memory.total(),
                                                 " = ", memory.Describe(), "; raise it"));
}

absl::Status PreparedWorker::CheckDeviceMemory() {
  if (job.cluster().memory_limit() > 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cluster.memory_limit: got ", job.cluster().memory_limit(),
        " bytes beside cluster.device \"", job.cluster().device(),
        "\", want 0: what the driver of a GPU takes of the ", "host's memory is in no sum"));
  }
  const int64_t available = backend->memory().available();
  TESSERA_ASSIGN_OR_RETURN(const WorkerMemory memory,
                           PlanDeviceWorkerMemory(job, recipe, *data, available));
  subnet_memory = memory.subnets;
  std::string parts = memory.replica_parts;
  // A subnet's payloads are no longer than the whole model's.
  const int64_t coding = DeviceCodingBytes(recipe.codecs, DeviceSidesOf(recipe, backend->memory()),
                                           shape, recipe.core);
  if (coding > 0) absl::StrAppend(&parts, " + coding ", coding);
  TESSERA_ASSIGN_OR_RETURN(const int64_t scratch, DeviceScratch());
  if (scratch > 0) absl::StrAppend(&parts, " + convolutions ", scratch);
  TESSERA_ASSIGN_OR_RETURN(const int64_t batches, DeviceBatchBytes(job, recipe, *data));
  absl::StrAppend(&parts, " + batches on their way ", batches);
  const int64_t need = memory.replica + coding + scratch + batches;
  if (need <= available) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "cluster.device: ", backend->description(), " has ", available,
      " bytes free, but this worker needs ", need, " = ", parts,
      "; use another GPU, fewer workers on this one, a smaller train.micro_batch, or cpu"));
}

// What a device takes where the host, which has oneDNN, does not.
absl::StatusOr<int64_t> PreparedWorker::DeviceScratch() const {
  TESSERA_ASSIGN_OR_RETURN(const NetworkPlan plan, PlanOf(job.model()));
  TESSERA_ASSIGN_OR_RETURN(const Precision precision, PrecisionOf(job.train().precision()));
  return DeviceScratchBytes(plan, BatchRowsMax(job), precision, *backend);
}

absl::Status PreparedWorker::CheckPrecision() const {
  TESSERA_ASSIGN_OR_RETURN(const Precision precision, PrecisionOf(job.train().precision()));
  if (precision == Precision::kTf32) return backend->linear_tf32().status();
  if (precision == Precision::kBf16) return backend->linear_bf16().status();
  return absl::OkStatus();
}

absl::Status PreparedWorker::CheckFacts(const Checkpoint& checkpoint,
                                        const v1::JoinReply& admission) const {
  const v1::Resume& resume = admission.resume();
  TESSERA_ASSIGN_OR_RETURN(std::optional<ModelFacts> saved, ReadFacts(checkpoint));
  const bool is_first = admission.rank() == 0;
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
  if (!saved->ReadsAs(data->facts)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "checkpoint: \"", checkpoint.path(),
        "\" has other labels or characters, or another normalisation, than this worker began to "
        "read its rows with; ",
        HasOwnDisks(job)
            ? "with checkpoint.store own_disks it reads them from its rows, which must "
              "be those that the job was trained on"
            : "start it again"));
  }
  if (!resume.from_restore()) return absl::OkStatus();
  const bool is_local = job.data().partition() == "local";
  if (is_local) {  // The rows of each rank are its own.
    TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<SafetensorsReader> own,
                             checkpoint.OpenWorker(admission.rank()));
    if (own == nullptr) return absl::OkStatus();
    TESSERA_ASSIGN_OR_RETURN(saved, ReadFacts(*own));
  }
  if (saved && saved->train_sum != train_sum && (is_local || is_first)) {
    Log(LogLevel::kWarning,
        absl::StrCat("checkpoint: training rows are others than it was trained on; labels and "
                     "normalisation stay what they were step=",
                     resume.step()));
  }
  if (saved && is_first && NormalizesOtherwise(job, *saved)) {
    Log(LogLevel::kWarning,
        absl::StrCat("checkpoint: data.normalize is not what it was trained with; its "
                     "normalisation is kept step=",
                     resume.step()));
  }
  return absl::OkStatus();
}

}  // namespace tessera
