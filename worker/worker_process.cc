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
#include "common/base/process_limits.h"
#include "common/base/steady_clock.h"
#include "common/base/termination.h"
#include "common/base/utf8.h"
#include "common/base/wakeup.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/model_facts.h"
#include "common/config/job_difference.h"
#include "common/config/job_digest.h"
#include "common/config/job_reader.h"
#include "common/etcd/coordinator_key.h"
#include "common/etcd/etcd_client.h"
#include "common/layout/parameters.h"
#include "common/layout/shard_map.h"
#include "common/method/recipe.h"
#include "common/metrics/process_memory.h"
#include "common/rpc/security.h"
#include "common/rpc/transport.h"
#include "worker/checkpoint/worker_saver.h"
#include "worker/data/dataset.h"
#include "worker/data/load_datasets.h"
#include "worker/moved_shards.h"
#include "worker/model/plan.h"
#include "worker/rejoin.h"
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
#include "worker/worker_life.h"
#include "worker/worker_needs.h"

namespace tessera {
namespace {

// How long a server is tried that cannot be reached, in leases. The coordinator takes a server for lost one lease
// after it was heard last, and is the one to say so: by itself a worker gives up later.
constexpr double kServerRetryLeases = 1.5;
// Where another takes its place, which may need its own lease for that: a replica's peer, or a standby.
constexpr double kReplacedRetryLeases = 3;
constexpr absl::Duration kPausePoll = absl::Milliseconds(50);
// For a train loop that has been told to end, at least; a minibatch may be under way.
constexpr absl::Duration kLoopPatience = absl::Seconds(2);

int Refused(const absl::Status& why) {
  std::fprintf(stderr, "tessera-worker: %s\n", std::string(why.message()).c_str());
  return 2;
}

}  // namespace

absl::Status WorkerProcess::Prepare() {
  TESSERA_RETURN_IF_ERROR(CheckProcessLimits(WorkerNeeds(job_)));
  TESSERA_RETURN_IF_ERROR(UseSecurity(FilesOf(job_.security())));
  TESSERA_ASSIGN_OR_RETURN(recipe_, RecipeFor(job_));
  TESSERA_ASSIGN_OR_RETURN(shape_, ExchangedShape(job_.model(), recipe_));
  const auto& etcd = job_.cluster().coordinator().etcd();
  if (!etcd.empty()) {
    TESSERA_ASSIGN_OR_RETURN(etcd_, EtcdClient::Create({{etcd.begin(), etcd.end()}}));
    const auto& servers = job_.cluster().servers().addresses();
    finder_ = std::make_unique<CoordinatorFinder>(
        etcd_.get(), digest_, std::vector<std::string>(servers.begin(), servers.end()));
  } else if (options_.coordinator.empty() && job_.cluster().servers().addresses().empty()) {
    return absl::InvalidArgumentError(
        "--coordinator: not given, and cluster.servers is only a count; list the servers' "
        "host:port there, or use `tessera run`");
  }
  TESSERA_ASSIGN_OR_RETURN(backend_,
                           options_.make_backend(job_.cluster().device(), job_.cluster().threads(),
                                                 {job_.cluster().cudnn()}));
  TESSERA_RETURN_IF_ERROR(CheckPrecision());
  const int64_t limit = job_.cluster().memory_limit();
  if (limit > 0) LimitMemory();
  const std::optional<ModelFacts> saved = FactsToGoOnFrom(job_.checkpoint().restore());
  absl::StatusOr<Datasets> data = LoadDatasets(job_.data(), EndsOf(job_.model(), shape_),
                                               limit > 0 ? limit : DatasetBytesMaxHere(),
                                               saved ? &*saved : nullptr, ReadingPlanOf(job_));
  if (absl::IsResourceExhausted(data.status())) {
    return absl::ResourceExhaustedError(absl::StrCat(
        data.status().message(),
        limit > 0 ? "; cluster.memory_limit is all that this worker may take"
                  : "; this machine or container has no more memory; use a larger one, or give "
                    "each worker its part of the rows (data.partition: local), or set data.memory, "
                    "where the format's rows can be read one by one"));
  }
  if (!data.ok()) return data.status();
  data_ = std::make_unique<Datasets>(*std::move(data));
  train_sum_ = data_->train.Sum();
  test_sum_ = data_->test.Sum();
  data_->facts.train_sum = train_sum_;
  TESSERA_RETURN_IF_ERROR(CheckMemory());
  if (recipe_.split) return Listen();
  if (!options_.listen.empty()) {
    Log(LogLevel::kWarning,
        absl::StrCat("worker: --listen ", options_.listen, " has no use: with method ",
                     recipe_.name, " no other worker calls this one"));
  }
  return absl::OkStatus();
}

absl::Status WorkerProcess::Connect() {
  CoordinatorClient::Options control;
  if (finder_ != nullptr) {
    control.find = [this] { return finder_->Find(); };
  } else {
    control.address =
        options_.coordinator.empty() ? job_.cluster().servers().addresses(0) : options_.coordinator;
  }
  control.job_digest = digest_;
  control.job_text = JobTextToSend(job_);
  const int shards =
      ShardCount(recipe_.placement, static_cast<int>(job_.cluster().servers().count()));
  control.layout_hash = LayoutHash(shape_, shards);
  if (options_.rank >= 0) control.rank = Rank(options_.rank);
  if (admission_.admitted()) {  // it was admitted before
    control.rank = Rank(admission_.rank());
    control.continues = MemberId(admission_.member());
  }
  control.description = ProcessDescription();
  if (layers_ != nullptr) control.own_address = layers_->address();
  control.rows = data_->train.rows();
  control.train_sum = train_sum_;
  control.test_sum = test_sum_;
  control.values = data_->train.is_bytes() ? v1::VALUES_BYTES : v1::VALUES_NUMBERS;
  coordinator_ = std::make_unique<CoordinatorClient>(std::move(control));
  {
    absl::MutexLock lock(&mutex_);
    joining_ = coordinator_.get();
    if (asked_to_leave_) joining_->Cancel();
  }
  absl::StatusOr<v1::JoinReply> joined = coordinator_->Join([](absl::string_view waiting_for) {
    Log(LogLevel::kInfo, absl::StrCat("worker: waiting for ", waiting_for));
  });
  bool leaves = false;
  {
    absl::MutexLock lock(&mutex_);
    joining_ = nullptr;
    leaves = asked_to_leave_;
  }
  TESSERA_RETURN_IF_ERROR(joined.status());
  // The worker's client was cancelled after it had become a member, and makes no other call than this.
  if (leaves) {
    coordinator_->Withdraw("");
    return absl::CancelledError("cancelled");
  }
  admission_ = *std::move(joined);
  Log(LogLevel::kInfo,
      absl::StrCat("worker: joined rank=", admission_.rank(), " member=", admission_.member(),
                   " first_exchange=", admission_.first_exchange()));
  // One tells what holds for all: they have the same files, but for local rows.
  if (admission_.rank() == 0 || job_.data().partition() == "local") {
    for (const std::string& note : data_->notes) {
      Log(LogLevel::kWarning, absl::StrCat("worker: ", note));
    }
    data_->notes.clear();
  }
  // The loss may be told while this client is being destroyed.
  CoordinatorClient* const client = coordinator_.get();
  client->StartRenewing(
      [this, client](absl::Status why) {
        const bool rejoins = absl::IsAborted(why);
        OnLost(std::move(why));
        client->Cancel();
        if (!rejoins) EndStalled();
      },
      [this](const v1::ServerList& list) { OnServers(list); },
      [this](bool is_away) { OnAway(is_away); },
      [this](const v1::WorkerList& list) { OnWorkers(list); });
  coordination_ = std::make_unique<RemoteCoordination>(coordinator_.get());

  ParameterClientGrpc::Options data;
  data.placement = recipe_.placement;
  data.home = admission_.rank();
  if (recipe_.placement == Placement::kSharded) {
    data.servers.assign(admission_.servers().begin(), admission_.servers().end());
  }
  for (int shard = 0; shard < shards; ++shard) {
    data.slices.push_back(SlicesOf(shape_, ShardId(shard), shards));
  }
  data.layout_hash = LayoutHash(shape_, shards);
  data.member = MemberId(admission_.member());
  data.generation = Generation(admission_.generation());
  data.job_digest = digest_;
  data.kind = static_cast<v1::PayloadKind>(recipe_.payload);
  data.coding = {recipe_.codecs,    shape_,
                 job_.seed(),       Rank(admission_.rank()),
                 recipe_.placement, DeviceSidesOf(recipe_, backend_->memory()),
                 backend_.get()};
  if (recipe_.split) data.coding.layers = recipe_.split->range(Rank(admission_.rank()));
  data.has_standbys = job_.cluster().replicas() > 0;
  const bool is_replaced = recipe_.placement == Placement::kReplicated || data.has_standbys;
  data.retry_time = absl::Nanoseconds(admission_.lease_timeout_ns()) *
                    (is_replaced ? kReplacedRetryLeases : kServerRetryLeases);
  if (data.has_standbys) data.on_trouble = [client] { client->RenewSoon(); };
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<ParameterClientGrpc> servers,
                           ParameterClientGrpc::Create(std::move(data)));
  servers->SetServers(admission_.server_list());
  absl::MutexLock lock(&mutex_);
  if (server_list_.servers().empty()) server_list_ = admission_.server_list();
  servers->SetServers(server_list_);
  servers->SetAway(is_away_);
  servers_ = std::move(servers);
  return absl::OkStatus();
}

absl::Status WorkerProcess::MakeLearner() {
  LayerEnds ends;
  if (layers_ != nullptr) {
    BeginLayers();
    ends = {layers_->sender(), layers_->receiver()};
  }
  TESSERA_ASSIGN_OR_RETURN(
      learner_,
      MakeReplica(job_, recipe_, Rank(admission_.rank()), Exchange(admission_.first_exchange()),
                  backend_.get(), InputRowsOf(job_.model(), *data_), subnet_memory_, ends));
  return absl::OkStatus();
}

absl::Status WorkerProcess::MakeSaver() {
  const v1::Checkpoint& checkpoint = job_.checkpoint();
  if (admission_.has_resume() && admission_.resume().from_restore() &&
      checkpoint.restore().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("checkpoint.restore: not set here, and the job goes on from step ",
                     admission_.resume().step(), "; name the checkpoint that server 0 was given"));
  }
  WorkerSaver::Options saver;
  saver.directory = checkpoint.directory();
  saver.rank = Rank(admission_.rank());
  saver.workers = job_.cluster().workers();
  saver.push_weight = recipe_.push_weight;
  saver.split = recipe_.split;
  saver.payload = recipe_.payload;
  saver.pushes = recipe_.pushes;
  saver.facts = data_->facts;
  saver.tell = [this](v1::SavedRequest request) { return coordinator_->Saved(std::move(request)); };
  if (admission_.has_resume()) {
    const v1::Resume& resume = admission_.resume();
    saver.restored = CheckpointPath(
        resume.from_restore() ? checkpoint.restore() : checkpoint.directory(), resume.step());
    saver.restored_sum = resume.manifest_sum();
    saver.goes_back = !resume.from_restore();
    TESSERA_RETURN_IF_ERROR(CheckFacts(saver.restored, resume));
  }
  saver_ = std::make_unique<WorkerSaver>(std::move(saver));
  return absl::OkStatus();
}

absl::Status WorkerProcess::TrainOnce() {
  TESSERA_RETURN_IF_ERROR(Connect());
  TESSERA_RETURN_IF_ERROR(MakeLearner());
  if (has_checkpoints() || admission_.resume().from_restore()) TESSERA_RETURN_IF_ERROR(MakeSaver());
  TrainLoop::Options options;
  options.job = job_;
  options.recipe = recipe_;
  options.rank = Rank(admission_.rank());
  options.first_exchange = Exchange(admission_.first_exchange());
  options.first_step = admission_.first_step();
  options.first_epoch = admission_.epoch();
  options.store = saver_.get();
  options.resumes = saver_ != nullptr && admission_.has_resume();
  options.evaluation_due = admission_.evaluation_due() || admission_.resume().evaluation_due();
  options.checkpoint_number = admission_.checkpoint_number();
  options.before = before_;
  TrainLoop* loop = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    loop_ = std::make_unique<TrainLoop>(std::move(options), data_.get(), learner_.get(),
                                        servers_.get(), coordination_.get());
    loop = loop_.get();
    if (asked_to_leave_) loop->Stop();
  }
  loop_over_.WaitFor(absl::ZeroDuration());  // the thread of the incarnation before
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
  using Answer = RejoinQuestion::Answer;
  RejoinQuestion question(status, absl::Nanoseconds(admission_.lease_timeout_ns()), SteadyNow());
  while (question.may_be_server() && has_checkpoints()) {
    {
      absl::MutexLock lock(&mutex_);
      if (absl::IsAborted(lost_)) return true;
      if (!lost_.ok() || asked_to_leave_) return false;
    }
    const absl::StatusOr<v1::RenewReply> word = coordinator_->AskMembership();
    const bool may_return = coordinator_->MayReturn(word.status());
    const Answer answer = question.OnWord(word, may_return, SteadyNow());
    if (answer != Answer::kAskAgain) return answer == Answer::kJoinAgain;
    absl::SleepFor(kPausePoll);
  }
  absl::MutexLock lock(&mutex_);
  return absl::IsAborted(lost_);
}

void WorkerProcess::Forget() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  before_.emplace(LifeBefore{loop_->phases(), loop_->traffic()});
  Log(LogLevel::kWarning, absl::StrCat("worker: joining again rank=", admission_.rank()));
  coordinator_->Cancel();
  // While its disk hangs it says so, and a second signal ends it; the others wait no longer than for one that is lost.
  saver_.reset();
  {
    absl::MutexLock lock(&mutex_);
    loop_.reset();
    servers_.reset();
  }
  coordination_.reset();
  coordinator_.reset();  // Waits for the thread that renews.
  learner_.reset();
  if (layers_ != nullptr) {
    layers_->End();
    layers_->SetAway(false);
  }
  absl::MutexLock lock(&mutex_);
  is_away_ = false;
  lost_ = absl::OkStatus();
}

absl::Status WorkerProcess::Train() {
  absl::Status status = TrainOnce();
  while (!status.ok() && loop_exists() && MayRejoin(status)) {
    Forget();
    status = TrainOnce();
  }
  if (!loop_exists()) {
    // Those who hear of the end need not wait for the worker's lease.
    if (joined() && !has_left(status)) coordinator_->Withdraw(ToUtf8(status.message()));
    return status;
  }
  if (absl::IsFailedPrecondition(status)) {
    const absl::Status word = coordinator_->AskMembership().status();
    if (absl::IsFailedPrecondition(word)) status = word;
  }
  bool residual_lost = false, was_asked = false;
  {
    absl::MutexLock lock(&mutex_);
    residual_lost = loop_->left_residual();
    was_asked = asked_to_leave_ && loop_->left_early();
  }
  // Without the lock: it waits for the renewing thread, which may be about to say that all is lost.
  const absl::Status left =
      coordinator_->Leave(Report(), ToUtf8(status.message()), residual_lost, was_asked);
  left_early_ = was_asked;
  return status.ok() ? left : status;
}

v1::WorkerReport WorkerProcess::Report() const ABSL_NO_THREAD_SAFETY_ANALYSIS {
  v1::WorkerReport report = ReportOf(*loop_);
  report.set_rank(admission_.rank());
  report.set_peak_rss_bytes(ReadProcessMemory().peak_rss_bytes);
  report.set_backend(backend_->description());
  report.set_cpu(CpuName());
  report.set_version(kVersion);
  report.set_gpu(backend_->gpu());
  return report;
}

void WorkerProcess::OnLost(absl::Status why) {
  absl::MutexLock lock(&mutex_);
  Log(LogLevel::kWarning, absl::StrCat("worker: cannot go on: ", why.message()));
  lost_ = std::move(why);
  if (loop_ != nullptr) loop_->Abandon();
  if (servers_ != nullptr) servers_->Cancel();
  if (layers_ != nullptr) layers_->Cancel();
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
  Log(LogLevel::kError,
      absl::StrCat("worker: ended error=\"", why, "; its train loop has not come back for ",
                   absl::FormatDuration(patience), "\""));
  _exit(1);
}

void WorkerProcess::OnServers(const v1::ServerList& list) {
  absl::MutexLock lock(&mutex_);
  if (job_.cluster().replicas() > 0) LogMovedShards(server_list_, list);
  server_list_ = list;
  if (servers_ != nullptr) servers_->SetServers(list);
}

void WorkerProcess::OnAway(bool is_away) {
  absl::MutexLock lock(&mutex_);
  is_away_ = is_away;
  if (servers_ != nullptr) servers_->SetAway(is_away);
  if (layers_ != nullptr) layers_->SetAway(is_away);
}

void WorkerProcess::OnSignal(int count) {
  if (count > 1) _exit(1);
  absl::MutexLock lock(&mutex_);
  asked_to_leave_ = true;
  Log(LogLevel::kInfo,
      loop_ != nullptr
          ? "worker: signal received, leaving after this exchange; again to end at once"
          : "worker: signal received, leaving; again to end at once");
  if (joining_ != nullptr) joining_->Cancel();
  if (loop_ != nullptr) loop_->Stop();
  if (layers_ != nullptr) layers_->Leave();
}

int RunWorker(const WorkerOptions& options) {
  ConfigureAllocator();
  // Errors are said once, in our words; the environment may ask for gRPC's as well.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  // The threads that a worker of any job needs, checked before the first thread, which ends the process where
  // there is none.
  if (const absl::Status limits = CheckProcessLimits(WorkerNeeds({})); !limits.ok()) {
    return Refused(limits);
  }
  absl::Mutex mutex;
  WorkerProcess* running = nullptr;
  std::optional<int> outcome;  // once all is over but the tearing down, which a dead disk holds up
  const Termination termination([&](int count, int) {
    absl::MutexLock lock(&mutex);
    if (outcome && count > 1) _exit(*outcome);
    if (outcome) return;
    if (running == nullptr) {
      // Nobody knows of it yet, or any more.
      Log(LogLevel::kInfo, "worker: ended, signal received before it had joined");
      _exit(0);
    }
    running->OnSignal(count);
  });
  const JobOptions checks{/*check_files=*/true, /*check_security=*/true, /*check_restore=*/false};
  const JobReading reading = ReadJobFile(options.job_path, options.overrides, checks);
  if (!reading.ok()) {
    std::fputs(FormatJobErrors(reading.errors).c_str(), stderr);
    return 2;
  }
  WorkerProcess process(options, reading.job);
  if (const absl::Status status = process.Prepare(); !status.ok()) {
    return Refused(status);
  }
  {
    absl::MutexLock lock(&mutex);
    running = &process;
  }
  const absl::Status status = process.Train();
  absl::MutexLock lock(&mutex);
  if (status.ok() || process.has_left(status)) {
    Log(LogLevel::kInfo,
        process.left_early() ? "worker: ended, left before the job's end" : "worker: ended");
    outcome = 0;
  } else {
    Log(LogLevel::kError, absl::StrCat("worker: ended error=\"", status.message(), "\""));
    // Refused for what the job says: as wrong as if it had been found before.
    const bool is_wrong = absl::IsInvalidArgument(status) || absl::IsUnauthenticated(status) ||
                          absl::IsPermissionDenied(status);
    outcome = is_wrong && !process.joined() ? 2 : 1;
  }
  return *outcome;
}

}  // namespace tessera
