#include "worker/worker_process.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/process.h"
#include "common/base/steady_clock.h"
#include "common/base/termination.h"
#include "common/base/wakeup.h"
#include "common/checkpoint/checkpoint.h"
#include "common/config/job_digest.h"
#include "common/config/job_reader.h"
#include "common/layout/parameters.h"
#include "common/layout/shard_map.h"
#include "common/method/recipe.h"
#include "common/metrics/process_memory.h"
#include "common/rpc/security.h"
#include "common/rpc/transport.h"
#include "worker/data/dataset.h"
#include "worker/moved_shards.h"
#include "worker/checkpoint/worker_saver.h"
#include "worker/model/plan.h"
#include "worker/replica/batch_rows.h"
#include "worker/replica/make_replica.h"
#include "worker/replica/replica.h"
#include "worker/replica/subnet_memory.h"
#include "worker/exchange/device_sides.h"
#include "worker/rpc/coordinator_client.h"
#include "worker/rpc/device_memory.h"
#include "worker/rpc/parameter_client_grpc.h"
#include "worker/rpc/remote_coordination.h"
#include "worker/rpc/update_coder.h"
#include "worker/train/learner.h"
#include "worker/train/train_loop.h"
#include "worker/train/worker_report.h"

namespace tessera {
namespace {

// The program itself, its libraries and its heap, and what oneDNN prepares. A connection to each server
// comes on top.
constexpr int64_t kProgramBytes = int64_t{40} << 20;
constexpr int64_t kCalibrationRowsMax = 2048;
// Where servers are replicas: how long a peer is tried that cannot be reached, in leases.
constexpr int64_t kPeerRetryLeases = 3;
constexpr absl::Duration kPausePoll = absl::Milliseconds(50);
constexpr absl::Duration kNoticeMargin = absl::Seconds(1);
// For a train loop that has been told to end, at least; a minibatch may be under way.
constexpr absl::Duration kLoopPatience = absl::Seconds(2);

class WorkerProcess {
 public:
  WorkerProcess(const WorkerOptions& options, v1::Job job)
      : options_(options), job_(std::move(job)), digest_(JobDigest(job_)) {}

  // Everything that can be wrong before anybody is told of this worker.
  absl::Status Prepare();
  // From joining to leaving; joins again where the job goes back to a checkpoint.
  absl::Status Train();
  // From the signal thread.
  void OnSignal(int count);
  bool joined() const { return admission_.admitted(); }

 private:
  absl::Status CheckMemory();
  absl::Status CheckPrecision() const;
  // Of a device with memory of its own.
  absl::Status CheckDeviceMemory(int64_t replica, const std::string& parts) const;
  absl::Status Connect();
  absl::Status MakeLearner();
  // As one member.
  absl::Status TrainOnce();
  // After an error of TrainOnce: whether the job went back to a checkpoint, or is about to.
  bool MayRejoin(const absl::Status& status);
  // Ends this member's life; its work is in the report of the next.
  void Forget();
  void MakeSaver();
  v1::WorkerReport Report() const;
  void OnLost(absl::Status why);
  // Ends the process if the train loop does not, because it hangs.
  void EndStalled();
  void OnServers(const v1::ServerList& list);
  bool has_checkpoints() const {
    return !job_.checkpoint().directory().empty() || !job_.checkpoint().restore().empty();
  }
  bool loop_exists() const {
    absl::MutexLock lock(&mutex_);
    return loop_ != nullptr;
  }

  const WorkerOptions& options_;
  const v1::Job job_;
  const std::string digest_;
  ModelShape shape_;
  Recipe recipe_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Datasets> data_;
  SubnetMemory subnet_memory_;  // where subnets are trained
  std::unique_ptr<Learner> learner_;
  std::unique_ptr<CoordinatorClient> coordinator_;
  std::unique_ptr<RemoteCoordination> coordination_;
  std::unique_ptr<WorkerSaver> saver_;
  v1::WorkerReport before_;  // of the lives before this one
  v1::JoinReply admission_;

  mutable absl::Mutex mutex_;
  // Set while they may be told to stop.
  std::unique_ptr<ParameterClientGrpc> servers_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<TrainLoop> loop_ ABSL_GUARDED_BY(mutex_);
  v1::ServerList server_list_ ABSL_GUARDED_BY(mutex_);  // as of the last renewal that brought one
  bool asked_to_leave_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status lost_ ABSL_GUARDED_BY(mutex_);
  Wakeup loop_over_;  // its train loop has returned
};

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
    TESSERA_ASSIGN_OR_RETURN(replica,
                             Replica::MemoryNeeded(job_, recipe_, rows.calibration, input));
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
    return CheckDeviceMemory(replica + coding, parts);
  }
  const int64_t need = data + replica + program;
  if (limit == 0 || need <= limit) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "cluster.memory_limit: is ", limit, " bytes, but this worker needs ", need, " = data ", data,
      " + ", parts, " + program and connections ", program, "; raise it"));
}

absl::Status WorkerProcess::CheckDeviceMemory(int64_t replica, const std::string& parts) const {
  const int64_t available = backend_->memory().available();
  if (replica <= available) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "cluster.device: ", backend_->description(), " has ", available,
      " bytes free, but this worker needs ", replica, " = ", parts,
      "; use another GPU, fewer workers on this one, or cpu"));
}

absl::Status WorkerProcess::CheckPrecision() const {
  TESSERA_ASSIGN_OR_RETURN(const Precision precision, PrecisionOf(job_.train().precision()));
  if (precision == Precision::kTf32) return backend_->linear_tf32().status();
  if (precision == Precision::kBf16) return backend_->linear_bf16().status();
  return absl::OkStatus();
}

absl::Status WorkerProcess::Prepare() {
  TESSERA_RETURN_IF_ERROR(UseSecurity(FilesOf(job_.security())));
  TESSERA_ASSIGN_OR_RETURN(recipe_, RecipeFor(job_));
  TESSERA_ASSIGN_OR_RETURN(shape_, ExchangedShape(job_.model(), recipe_));
  if (options_.coordinator.empty() && job_.cluster().servers().addresses().empty()) {
    return absl::InvalidArgumentError(
        "--coordinator: not given, and cluster.servers is only a count; list the servers' "
        "host:port there, or use "
        "`tessera run`");
  }
  TESSERA_ASSIGN_OR_RETURN(backend_,
                           options_.make_backend(job_.cluster().device(), job_.cluster().threads()));
  TESSERA_RETURN_IF_ERROR(CheckPrecision());
  ModelEnds ends;
  ends.inputs = shape_.inputs();
  ends.outputs = shape_.outputs();
  ends.sigmoid = job_.model().loss() == "sigmoid_cross_entropy";
  if (job_.cluster().memory_limit() > 0) LimitMemory();
  absl::StatusOr<Datasets> data = LoadDatasets(job_.data(), ends);
  if (!data.ok()) return data.status();
  data_ = std::make_unique<Datasets>(*std::move(data));
  return CheckMemory();
}

absl::Status WorkerProcess::Connect() {
  CoordinatorClient::Options control;
  control.address =
      options_.coordinator.empty() ? job_.cluster().servers().addresses(0) : options_.coordinator;
  control.job_digest = digest_;
  const int shards =
      ShardCount(recipe_.placement, static_cast<int>(job_.cluster().servers().count()));
  control.layout_hash = LayoutHash(shape_, shards);
  if (options_.rank >= 0) control.rank = Rank(options_.rank);
  if (admission_.admitted()) control.rank = Rank(admission_.rank());  // As before.
  control.description = ProcessDescription();
  control.rows = data_->train.rows();
  coordinator_ = std::make_unique<CoordinatorClient>(std::move(control));
  TESSERA_ASSIGN_OR_RETURN(admission_, coordinator_->Join([](absl::string_view waiting_for) {
    Log(LogLevel::kInfo, absl::StrCat("worker: waiting for ", waiting_for));
  }));
  Log(LogLevel::kInfo,
      absl::StrCat("worker: joined rank=", admission_.rank(), " member=", admission_.member(),
                   " first_exchange=", admission_.first_exchange()));
  // It may come while this client is being destroyed.
  CoordinatorClient* const client = coordinator_.get();
  client->StartRenewing([this, client](absl::Status why) {
    const bool rejoins = absl::IsAborted(why);
    OnLost(std::move(why));
    client->Cancel();
    if (!rejoins) EndStalled();
  }, [this](const v1::ServerList& list) { OnServers(list); });
  coordination_ = std::make_unique<RemoteCoordination>(coordinator_.get());

  ParameterClientGrpc::Options data;
  data.placement = recipe_.placement;
  data.home = admission_.rank();
  if (recipe_.placement == Placement::kSharded) {
    data.servers.assign(admission_.servers().begin(), admission_.servers().end());
  }
  for (int shard = 0; shard < shards; ++shard)
    data.slices.push_back(SlicesOf(shape_, ShardId(shard), shards));
  data.layout_hash = LayoutHash(shape_, shards);
  data.member = MemberId(admission_.member());
  data.generation = Generation(admission_.generation());
  data.job_digest = digest_;
  data.kind = static_cast<v1::PayloadKind>(recipe_.payload);
  data.coding = {recipe_.codecs, shape_, job_.seed(), Rank(admission_.rank()),
                 recipe_.placement, DeviceSidesOf(recipe_, backend_->memory()), backend_.get()};
  data.retry_time = absl::Nanoseconds(admission_.lease_timeout_ns());
  // A peer that dies is out of the list after its lease, which may begin a little later.
  if (recipe_.placement == Placement::kReplicated) data.retry_time *= kPeerRetryLeases;
  data.has_standbys = job_.cluster().replicas() > 0;
  if (data.has_standbys) data.retry_time *= kPeerRetryLeases;  // As above.
  if (data.has_standbys) data.on_trouble = [client] { client->RenewSoon(); };
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<ParameterClientGrpc> servers,
                           ParameterClientGrpc::Create(std::move(data)));
  servers->SetServers(admission_.server_list());
  absl::MutexLock lock(&mutex_);
  if (server_list_.servers().empty()) server_list_ = admission_.server_list();
  servers->SetServers(server_list_);
  servers_ = std::move(servers);
  return absl::OkStatus();
}

absl::Status WorkerProcess::MakeLearner() {
  TESSERA_ASSIGN_OR_RETURN(
      learner_, MakeReplica(job_, recipe_, Rank(admission_.rank()),
                            Exchange(admission_.first_exchange()), backend_.get(),
                            InputRowsOf(job_.model(), *data_), subnet_memory_));
  return absl::OkStatus();
}

void WorkerProcess::MakeSaver() {
  const v1::Checkpoint& checkpoint = job_.checkpoint();
  WorkerSaver::Options saver;
  saver.directory = checkpoint.directory();
  saver.rank = Rank(admission_.rank());
  saver.workers = job_.cluster().workers();
  saver.tell = [this](v1::SavedRequest request) { return coordinator_->Saved(std::move(request)); };
  if (admission_.has_resume()) {
    const v1::Resume& resume = admission_.resume();
    saver.restored = CheckpointPath(
        resume.from_restore() ? checkpoint.restore() : checkpoint.directory(), resume.step());
  }
  saver_ = std::make_unique<WorkerSaver>(std::move(saver));
}

absl::Status WorkerProcess::TrainOnce() {
  TESSERA_RETURN_IF_ERROR(Connect());
  TESSERA_RETURN_IF_ERROR(MakeLearner());
  if (has_checkpoints()) MakeSaver();
  TrainLoop::Options options;
  options.job = job_;
  options.recipe = recipe_;
  options.rank = Rank(admission_.rank());
  options.first_exchange = Exchange(admission_.first_exchange());
  options.first_step = admission_.first_step();
  options.first_epoch = admission_.epoch();
  options.store = saver_.get();
  options.resumes = saver_ != nullptr && admission_.has_resume();
  options.evaluation_due = admission_.resume().evaluation_due();
  options.checkpoint_number = admission_.checkpoint_number();
  TrainLoop* loop = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    loop_ = std::make_unique<TrainLoop>(std::move(options), data_.get(), learner_.get(),
                                        servers_.get(), coordination_.get());
    loop = loop_.get();
    if (asked_to_leave_) loop->Stop();
  }
  loop_over_.WaitFor(absl::ZeroDuration());  // Of the life before.
  absl::Status status = loop->Run();
  loop_over_.Notify();
  {
    absl::MutexLock lock(&mutex_);
    // What ended the calls says more than that they were cancelled.
    if (!lost_.ok()) status = lost_;
  }
  return status;
}

bool WorkerProcess::MayRejoin(const absl::Status& status) {
  // A server that is lost is noticed by whoever wants something of it first; the coordinator knows when
  // its lease is over.
  const absl::Time notice =
      SteadyNow() + 2 * absl::Nanoseconds(admission_.lease_timeout_ns()) + kNoticeMargin;
  const bool may_be_server = absl::IsUnavailable(status) || absl::IsAborted(status) ||
                             absl::IsFailedPrecondition(status) || absl::IsCancelled(status);
  while (may_be_server && has_checkpoints()) {
    {
      absl::MutexLock lock(&mutex_);
      if (absl::IsAborted(lost_)) return true;
      if (!lost_.ok() || asked_to_leave_) return false;
    }
    const absl::StatusOr<v1::RenewReply> word = coordinator_->AskMembership();
    if (!word.ok()) return false;
    if (word->rejoin()) return true;
    const bool is_told = absl::IsFailedPrecondition(status) && !word->paused();
    if (is_told || (!word->paused() && SteadyNow() > notice)) return false;
    absl::SleepFor(kPausePoll);
  }
  absl::MutexLock lock(&mutex_);
  return absl::IsAborted(lost_);
}

void WorkerProcess::Forget() {
  before_ = Report();
  Log(LogLevel::kWarning, absl::StrCat("worker: joining again rank=", admission_.rank()));
  coordinator_->Cancel();
  saver_.reset();
  {
    absl::MutexLock lock(&mutex_);
    loop_.reset();
    servers_.reset();
  }
  coordination_.reset();
  coordinator_.reset();  // Waits for the thread that renews.
  learner_.reset();
  absl::MutexLock lock(&mutex_);
  lost_ = absl::OkStatus();
}

absl::Status WorkerProcess::Train() {
  absl::Status status = TrainOnce();
  while (!status.ok() && loop_exists() && MayRejoin(status)) {
    Forget();
    status = TrainOnce();
  }
  if (!loop_exists()) return status;
  if (absl::IsFailedPrecondition(status)) {
    const absl::Status word = coordinator_->AskMembership().status();
    if (absl::IsFailedPrecondition(word)) status = word;
  }
  // Without the lock: it waits for the renewing thread, which may be about to say that all is lost.
  const absl::Status left = coordinator_->Leave(Report(), status.ok() ? "" : status.message());
  return status.ok() ? left : status;
}

v1::WorkerReport WorkerProcess::Report() const ABSL_NO_THREAD_SAFETY_ANALYSIS {
  v1::WorkerReport report = ReportOf(*loop_, servers_->traffic());
  AddWork(before_, &report);
  report.set_rank(admission_.rank());
  report.set_peak_rss_bytes(ReadProcessMemory().peak_rss_bytes);
  report.set_backend(backend_->description());
  report.set_cpu(CpuName());
  report.set_gpu(backend_->gpu());
  return report;
}

void WorkerProcess::OnLost(absl::Status why) {
  absl::MutexLock lock(&mutex_);
  Log(LogLevel::kWarning, absl::StrCat("worker: cannot go on: ", why.message()));
  lost_ = std::move(why);
  if (loop_ != nullptr) loop_->Stop();
  if (servers_ != nullptr) servers_->Cancel();
}

// Called once this worker is no member any more, on the thread that renewed its lease.
void WorkerProcess::EndStalled() {
  if (!loop_exists()) return;
  const absl::Duration patience =
      std::max(kLoopPatience, absl::Nanoseconds(admission_.lease_timeout_ns()));
  if (loop_over_.WaitFor(patience)) return;
  std::string why;
  {
    absl::MutexLock lock(&mutex_);
    why = std::string(lost_.message());
  }
  Log(LogLevel::kError, absl::StrCat("worker: ended error=\"", why,
                                     "; its train loop has not come back for ",
                                     absl::FormatDuration(patience), "\""));
  _exit(1);
}

void WorkerProcess::OnServers(const v1::ServerList& list) {
  absl::MutexLock lock(&mutex_);
  if (job_.cluster().replicas() > 0) LogMovedShards(server_list_, list);
  server_list_ = list;
  if (servers_ != nullptr) servers_->SetServers(list);
}

void WorkerProcess::OnSignal(int count) {
  if (count > 1) _exit(1);
  absl::MutexLock lock(&mutex_);
  asked_to_leave_ = true;
  if (loop_ == nullptr)
    _exit(1);  // Nothing to finish yet; the lease or the connection tells the others.
  Log(LogLevel::kInfo,
      "worker: signal received, leaving after this exchange; again to end at once");
  loop_->Stop();
}

}  // namespace

int RunWorker(const WorkerOptions& options) {
  ConfigureAllocator();
  // Errors are said once, in our words; the environment may ask for gRPC's as well.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  absl::Mutex mutex;
  WorkerProcess* running = nullptr;
  const Termination termination([&](int count) {
    absl::MutexLock lock(&mutex);
    if (running == nullptr) _exit(1);
    running->OnSignal(count);
  });
  const JobReading reading = ReadJobFile(options.job_path, options.overrides, JobOptions{});
  if (!reading.ok()) {
    std::fputs(FormatJobErrors(reading.errors).c_str(), stderr);
    return 2;
  }
  WorkerProcess process(options, reading.job);
  if (const absl::Status status = process.Prepare(); !status.ok()) {
    std::fprintf(stderr, "tessera-worker: %s\n", std::string(status.message()).c_str());
    return 2;
  }
  {
    absl::MutexLock lock(&mutex);
    running = &process;
  }
  const absl::Status status = process.Train();
  {
    absl::MutexLock lock(&mutex);
    running = nullptr;
  }
  if (status.ok()) {
    Log(LogLevel::kInfo, "worker: ended");
    return 0;
  }
  Log(LogLevel::kError, absl::StrCat("worker: ended error=\"", status.message(), "\""));
  // Refused for what the job says: as wrong as if it had been found before.
  const bool is_wrong = absl::IsInvalidArgument(status) || absl::IsUnauthenticated(status) ||
                        absl::IsPermissionDenied(status);
  return is_wrong && !process.joined() ? 2 : 1;
}

}  // namespace tessera
