#include "server/server_process.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include <google/protobuf/stubs/common.h>
#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/address_file.h"
#include "common/base/check.h"
#include "common/base/host_port.h"
#include "common/base/log.h"
#include "common/base/output_file.h"
#include "common/base/process.h"
#include "common/base/process_limits.h"
#include "common/base/steady_clock.h"
#include "common/base/termination.h"
#include "common/checkpoint/initial_file.h"
#include "common/config/job_digest.h"
#include "common/config/job_output.h"
#include "common/config/job_reader.h"
#include "common/layout/parameters.h"
#include "common/layout/tensor_layout.h"
#include "common/method/recipe.h"
#include "common/rpc/control_channel.h"
#include "common/rpc/grpc_server.h"
#include "common/rpc/own_name.h"
#include "common/rpc/rpc_needs.h"
#include "common/rpc/security.h"
#include "common/rpc/status.h"
#include "common/rpc/transport.h"
#include "common/rule/schedule.h"
#include "server/control/job_facts.h"
#include "server/fetched_tensors.h"
#include "server/monitor/last_scrape.h"
#include "server/monitor/metrics_endpoint.h"
#include "server/port_limits.h"
#include "server/rpc/checkpoint_store_service.h"
#include "server/rpc/coordinator_service.h"
#include "server/rpc/live_coordinator.h"
#include "server/rpc/standby_control_service.h"
#include "server/rpc/status_service.h"
#include "server/rpc/tensor_file_service.h"
#include "server/server_checkpoints.h"
#include "server/server_control.h"
#include "server/server_memory.h"
#include "server/server_needs.h"
#include "server/server_page.h"
#include "server/server_place.h"
#include "server/shard/shard.h"
#include "server/shard/shard_memory.h"
#include "server/shard_host.h"

namespace tessera {
namespace {

// Beyond the lease that the coordinator gives to silent servers and workers at the end.
constexpr absl::Duration kEndMargin = absl::Seconds(2);
// How long status calls may still ask after the job has ended.
constexpr absl::Duration kLingerAfterEnd = absl::Seconds(1);
// How long one call takes that asks for the job's end, and the pause between two.
constexpr absl::Duration kDrainTime = absl::Seconds(2);
constexpr absl::Duration kDrainPause = absl::Milliseconds(250);
// How long workers may ask who leads what was led here: they do as soon as this server no longer answers them.
constexpr absl::Duration kTurnTime = absl::Seconds(1);

// Everything of one server, in the order in which it is built; destroyed in the reverse order.
class ServerProcess {
 public:
  ServerProcess(const ServerOptions& options, v1::Job job)
      : options_(options), job_(std::move(job)), digest_(JobDigest(job_)) {}
  ~ServerProcess() {
    // The election uses what is destroyed before control_ is.
    if (control_ != nullptr) control_->StopElection();
    if (drainer_.joinable()) drainer_.join();
    if (host_ != nullptr) host_->Disconnect();
  }

  absl::Status Start();
  // Waits until the job has ended. OK: it ended normally.
  absl::Status AwaitEnd();
  // Called by the signal thread.
  void OnSignal(int count);

 private:
  absl::Status CheckMemory(const Recipe& recipe, const ModelShape& shape);
  absl::Status OpenInitialFile();
  Shard::Options ShardOptions(int rank) const;
  // The bytes of the server's own parameters.
  int64_t SliceBytes() const;
  PortLimits Limits() const { return PortLimitsOf(job_, SliceBytes()); }
  void MakeHost(const JobFacts& facts);
  // Why the job cannot go on without this process, or with another one in its place; empty: it can.
  std::string WhyNotLeave() const;
  // The job goes on without this server.
  void FinishLeave();
  // Ends the process where nobody can be told that the job is to end.
  void DrainJob();
  // Once; it may be repeated without harm.
  absl::Status AskForDrain(const std::string& why);
  absl::Status StartServices();
  absl::Status StartMetrics();
  absl::Status StartPage();
  absl::Status CheckOutputs() const;
  absl::Status WriteReport(const v1::JobStatus& status) const;
  v1::JobStatus CurrentStatus() const;
  // Whether the server can be called and its job has not ended.
  bool Serves() const;
  std::shared_ptr<grpc::Channel> OpenCoordinator(const std::string& at);
  // The servers elect the one that is the coordinator.
  bool elects() const { return job_.cluster().coordinator().etcd_size() > 0; }
  bool may_coordinate() const { return MayCoordinate(job_, options_.rank); }
  bool is_coordinator() const { return coordinator_ != nullptr && coordinator_->is_here(); }

  const ServerOptions& options_;
  const v1::Job job_;
  const std::string digest_;
  ServerPlace place_;
  std::optional<ShardLimits> limits_;  // where memory is limited
  bool is_replica_ = false;
  Recipe recipe_;
  ModelShape shape_;
  std::shared_ptr<const InitialFile> initial_file_;  // nullptr: the job begins without one

  // This stands before control_, which may say until it is destroyed that it is vacated.
  mutable absl::Mutex mutex_;
  std::optional<absl::Status> link_ended_ ABSL_GUARDED_BY(mutex_);
  // The address at which the others reach it; empty: it does not serve yet.
  std::string reached_at_ ABSL_GUARDED_BY(mutex_);
  // The last status, once the job is over: what is asked for a status leaves it soon.
  std::optional<v1::JobStatus> last_status_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<ServerControl> control_;  // where it may be the coordinator
  LiveCoordinator* coordinator_ = nullptr;  // control_'s
  std::unique_ptr<ServerCheckpoints> checkpoints_;
  std::unique_ptr<ShardHost> host_;
  std::unique_ptr<CoordinatorService> coordinator_service_;
  std::unique_ptr<StandbyControlService> standby_control_service_;  // rank 0
  std::unique_ptr<AdminService> admin_service_;
  std::unique_ptr<StatusService> status_service_;
  std::unique_ptr<TensorFileService> tensor_file_service_;
  std::unique_ptr<CheckpointStoreService>
      checkpoint_store_service_;  // where disks are servers' own
  std::unique_ptr<GrpcServer> server_;
  LastScrape last_scrape_;
  std::unique_ptr<MetricsEndpoint> metrics_;
  std::unique_ptr<ServerPage> page_;
  std::thread drainer_;
};

// Refuses a memory limit that is too small before anybody hears of this server, with the parts of the sum.
absl::Status ServerProcess::CheckMemory(const Recipe& recipe, const ModelShape& shape) {
  const int64_t limit = job_.cluster().memory_limit();
  if (limit == 0) return absl::OkStatus();
  const ServerMemory memory = PlanServerMemory(job_, recipe, shape, options_.rank, limit);
  limits_ = memory.shard.limits;
  if (memory.total() > limit) {
    return absl::InvalidArgumentError(
        absl::StrCat("cluster.memory_limit: is ", limit, " bytes, but this server needs ",
                     memory.total(), " = ", memory.Describe(), "; raise it or use more servers"));
  }
  LimitMemory();
  UseRoom(memory.windows);
  Log(LogLevel::kInfo, absl::StrCat("server: memory limited bytes=", limit, " planned=",
                                    memory.total(), " windows=", NameOf(memory.windows.kind()),
                                    " freed=", memory.windows.keeps_freed() ? "kept" : "returned"));
  return absl::OkStatus();
}

// Opens the file whose values the job begins with. A job that goes on from a checkpoint has its own.
absl::Status ServerProcess::OpenInitialFile() {
  const bool has_file = IsOfTensors(job_.model()) || !job_.model().init().empty();
  if (!has_file || !job_.checkpoint().restore().empty()) return absl::OkStatus();
  TESSERA_ASSIGN_OR_RETURN(
      initial_file_, tessera::OpenInitialFile(job_.model(), InitialFactors(job_, recipe_, shape_)));
  const std::string others = initial_file_->DescribeOthers();
  Log(LogLevel::kInfo,
      absl::StrFormat("server: begins with file=\"%s\" sum=%016x%s",
                      IsOfTensors(job_.model()) ? job_.model().tensors() : job_.model().init(),
                      initial_file_->sum(), others.empty() ? "" : " not_in_the_model=" + others));
  return absl::OkStatus();
}

// Checks all that can be wrong with flags, job, files and limits before the port opens: from there on others would
// notice.
absl::Status ServerProcess::Start() {
  TESSERA_RETURN_IF_ERROR(CheckProcessLimits(ServerNeeds(job_)));
  TESSERA_RETURN_IF_ERROR(UseSecurity(FilesOf(job_.security())));
  TESSERA_ASSIGN_OR_RETURN(recipe_, RecipeFor(job_));
  is_replica_ = recipe_.placement == Placement::kReplicated;
  TESSERA_ASSIGN_OR_RETURN(
      place_, FindPlace(job_, {options_.rank, options_.listen, options_.coordinator}, is_replica_));
  TESSERA_RETURN_IF_ERROR(CheckListen(place_.listen, job_.security()));
  TESSERA_RETURN_IF_ERROR(CheckOutputs());
  TESSERA_RETURN_IF_ERROR(AwaitOwnName({"server", place_.listen, ListenEverywhere(place_.listen)}));
  std::error_code none;  // One of an earlier process would be taken for this one's.
  if (!options_.address_file.empty()) std::filesystem::remove(options_.address_file, none);
  TESSERA_ASSIGN_OR_RETURN(shape_, ExchangedShape(job_.model(), recipe_));
  TESSERA_RETURN_IF_ERROR(CheckMemory(recipe_, shape_));
  JobFacts facts = FactsOf(job_, recipe_, shape_, digest_);
  TESSERA_RETURN_IF_ERROR(OpenInitialFile());
  if (initial_file_ != nullptr) facts.initial_sum = initial_file_->sum();
  facts.origin = options_.origin;
  auto& libraries = *facts.origin.mutable_libraries();
  libraries["grpc"] = grpc::Version();
  libraries["protobuf"] = google::protobuf::internal::VersionString(GOOGLE_PROTOBUF_VERSION);
  checkpoints_ = std::make_unique<ServerCheckpoints>(job_, facts, options_.rank);
  if (may_coordinate()) {
    control_ = std::make_unique<ServerControl>(job_, facts, !options_.no_takeover);
    coordinator_ = control_->live();
    TESSERA_RETURN_IF_ERROR(control_->Open());
  }
  TESSERA_RETURN_IF_ERROR(checkpoints_->Prepare(control_ != nullptr && control_->goes_on()));
  MakeHost(facts);
  if (may_coordinate() && !elects()) {
    coordinator_->SetOnVacated([this](absl::Status why) {
      absl::MutexLock lock(&mutex_);
      if (!link_ended_) link_ended_ = std::move(why);
    });
    TESSERA_RETURN_IF_ERROR(control_->Begin(checkpoints_.get()));
  }
  return StartServices();
}

// Makes the shards' host, whose links go to the coordinator once the services are there.
void ServerProcess::MakeHost(const JobFacts& facts) {
  ShardHost::Options host;
  host.rank = static_cast<uint32_t>(options_.rank);
  host.shard_count = static_cast<uint32_t>(facts.servers);
  host.job_digest = digest_;
  host.job_text = facts.job_text;
  host.layout_hash = facts.layout_hash;
  host.initial_sum = facts.initial_sum;
  host.lease_timeout = absl::Nanoseconds(job_.cluster().lease_timeout());
  host.half_open_pushes_per_host = Limits().half_open_pushes_per_host;
  host.unread_bytes_per_host = Limits().unread_bytes_per_host;
  host.shares_memory = job_.cluster().transport() == "auto";
  host.is_replica = is_replica_;
  host.keeps_standbys = facts.standbys;
  host.shard_options = [this](uint32_t rank) { return ShardOptions(static_cast<int>(rank)); };
  host.checkpoints = checkpoints_.get();
  host.open_coordinator = [this](const std::string& at) { return OpenCoordinator(at); };
  if (elects()) host.find_coordinator = [this] { return control_->Find(); };
  host.on_end = [this](absl::Status status) {
    absl::MutexLock lock(&mutex_);
    if (!link_ended_) link_ended_ = std::move(status);
  };
  host_ = std::make_unique<ShardHost>(std::move(host));
}

// The one in this process is not called by the port: whoever floods that, and a handshake that takes its time, would
// cost this server its lease with itself.
std::shared_ptr<grpc::Channel> ServerProcess::OpenCoordinator(const std::string& at) {
  const bool is_own = at == server_->address() || at == place_.announced;
  return may_coordinate() && is_own ? server_->OpenWithin() : OpenControlChannel(at);
}

Shard::Options ServerProcess::ShardOptions(int rank) const {
  Shard::Options shard;
  shard.shape = shape_;
  shard.shard = ShardAt(recipe_.placement, rank);
  shard.sharding = ShardingOf(recipe_, static_cast<int>(job_.cluster().servers().count()));
  shard.placement = recipe_.placement;
  shard.seed = job_.seed();
  shard.initial_file = initial_file_;
  shard.kind = static_cast<int>(recipe_.payload);
  shard.codecs = recipe_.codecs;
  shard.policy = recipe_.make_policy();
  shard.rule = recipe_.make_rule();
  shard.schedule = recipe_.schedule;
  if (recipe_.subnets) shard.groups = GroupsOf(shape_, recipe_.subnet_rules);
  shard.core = recipe_.core;
  if (recipe_.split) shard.cut = recipe_.split->cut;
  if (recipe_.fragments) shard.fragments = recipe_.fragments->count;
  shard.limits = limits_;
  if (recipe_.tail_steps > 0) shard.whole_kind = static_cast<int>(TailOf(recipe_).payload);
  return shard;
}

int64_t ServerProcess::SliceBytes() const {
  const auto servers = static_cast<int>(job_.cluster().servers().count());
  return SlicesOf(shape_, ShardAt(recipe_.placement, options_.rank), ShardingOf(recipe_, servers))
      .bytes();
}

// Opens the port. Metrics and the page come first, as a taken address of theirs is a wrong flag, too.
absl::Status ServerProcess::StartServices() {
  TESSERA_RETURN_IF_ERROR(StartMetrics());
  TESSERA_RETURN_IF_ERROR(StartPage());
  EventsAfter events;
  if (may_coordinate()) {
    events = [this](uint64_t after) { return coordinator_->EventsAfter(after); };
  }
  status_service_ = std::make_unique<StatusService>([this] { return CurrentStatus(); },
                                                    StatusLimits(), std::move(events));
  GrpcServer::Options options;
  options.address = place_.listen;
  options.services = host_->services();
  options.services.push_back(status_service_.get());
  if (checkpoints_->held() != nullptr) {
    checkpoint_store_service_ =
        std::make_unique<CheckpointStoreService>(checkpoints_->held(), digest_);
    options.services.push_back(checkpoint_store_service_.get());
  }
  options.connections_per_host_max = Limits().connections_per_host;
  options.receive_bytes_max = Limits().receive_bytes;
  if (may_coordinate()) {
    coordinator_service_ = std::make_unique<CoordinatorService>(coordinator_);
    standby_control_service_ = std::make_unique<StandbyControlService>(coordinator_);
    admin_service_ = std::make_unique<AdminService>(coordinator_);
    TESSERA_ASSIGN_OR_RETURN(tensor_file_service_, TensorFileService::Open(job_.model().tensors()));
    options.services.push_back(tensor_file_service_.get());
    options.services.push_back(coordinator_service_.get());
    options.services.push_back(standby_control_service_.get());
    options.services.push_back(admin_service_.get());
  }
  TESSERA_ASSIGN_OR_RETURN(server_, GrpcServer::Start(options));
  Log(LogLevel::kInfo,
      absl::StrCat("server: serving rank=", options_.rank, " address=", server_->address(),
                   " job=", job_.name(), " digest=", digest_.substr(0, 12)));
  const std::string reached_at = place_.announced.empty() ? server_->address() : place_.announced;
  {
    absl::MutexLock lock(&mutex_);
    reached_at_ = reached_at;
  }
  host_->Start(may_coordinate() ? server_->address() : place_.coordinator, reached_at);
  if (!options_.address_file.empty()) {
    TESSERA_RETURN_IF_ERROR(WriteAddressFile(
        options_.address_file, {server_->address(), metrics_ == nullptr ? "" : metrics_->address(),
                                page_ == nullptr ? "" : page_->url()}));
  }
  // Last: a server that does not start is not to be elected.
  if (elects()) {
    control_->StandForElection({reached_at, checkpoints_.get(), [this] { return host_->run(); }});
  }
  return absl::OkStatus();
}

// Opens the metrics' endpoint, where the flag asks for one. It serves before the job's port does, so that /readyz
// can say 503.
absl::Status ServerProcess::StartMetrics() {
  if (options_.metrics.empty()) return absl::OkStatus();
  MetricsEndpoint::Options endpoint;
  endpoint.address = options_.metrics;
  endpoint.status = [this] { return CurrentStatus(); };
  endpoint.serves = [this] { return Serves(); };
  endpoint.job_name = job_.name();
  endpoint.on_scraped = [this](const v1::JobStatus& status) { last_scrape_.OnSent(status); };
  TESSERA_ASSIGN_OR_RETURN(metrics_, MetricsEndpoint::Start(std::move(endpoint)));
  Log(LogLevel::kInfo, absl::StrCat("monitor: serving metrics address=", metrics_->address()));
  if (IsLoopback(options_.metrics)) return absl::OkStatus();
  Log(LogLevel::kWarning,
      absl::StrCat(
          "monitor: metrics without encryption or tokens, for anybody who reaches address=",
          metrics_->address()));
  return absl::OkStatus();
}

absl::Status ServerProcess::StartPage() {
  if (options_.page.empty()) return absl::OkStatus();
  ServerPage::Options page;
  page.address = options_.page;
  page.status = [this] { return CurrentStatus(); };
  page.live = may_coordinate() ? coordinator_ : nullptr;
  TESSERA_ASSIGN_OR_RETURN(page_, ServerPage::Start(std::move(page), job_));
  Log(LogLevel::kInfo, absl::StrCat("page: serving url=", page_->url()));
  return absl::OkStatus();
}

bool ServerProcess::Serves() const {
  absl::MutexLock lock(&mutex_);
  return !reached_at_.empty() && !link_ended_.has_value();
}

// The status that this server can give: the whole job's where it has the coordinator, its own share elsewhere, and
// the last one once the job is over.
v1::JobStatus ServerProcess::CurrentStatus() const {
  {
    absl::MutexLock lock(&mutex_);
    if (last_status_.has_value()) return *last_status_;
  }
  v1::JobStatus status;
  if (is_coordinator()) {
    status = coordinator_->Status();
    absl::MutexLock lock(&mutex_);
    status.mutable_coordinator()->set_address(reached_at_);
  } else {
    status = host_->OwnStatus();
  }
  status.set_version(kVersion);
  status.set_clock_ns(absl::GetCurrentTimeNanos());
  status.set_security(CurrentSecurity().Describe());
  return status;
}

// Refuses outputs that cannot be written while nothing is lost yet, rather than after hours of work.
absl::Status ServerProcess::CheckOutputs() const {
  if (!options_.report_path.empty() && !may_coordinate()) {
    return absl::InvalidArgumentError("--report: only server 0 has the report, want --rank 0");
  }
  TESSERA_RETURN_IF_ERROR(
      CheckJobOutput("--report", options_.report_path, options_.job_path, job_));
  // The address file appears when the server is up, and no sooner.
  TESSERA_RETURN_IF_ERROR(
      CheckIsNoJobInput("--address-file", options_.address_file, options_.job_path, job_));
  return CheckAddressFile(options_.address_file);
}

absl::Status ServerProcess::WriteReport(const v1::JobStatus& status) const {
  if (options_.report_path.empty()) return absl::OkStatus();
  return WriteOutput("--report", options_.report_path, status.report_json());
}

// Ends in an order that loses no word: the report is written and the last status kept before the links close; then
// the port closes, and the metrics last, so that the end can be scraped.
absl::Status ServerProcess::AwaitEnd() {
  absl::Status outcome;
  {
    const auto has_ended = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return link_ended_.has_value();
    };
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&has_ended));
    outcome = *link_ended_;
  }
  const bool was_coordinator = is_coordinator();
  if (host_->has_left()) {
    FinishLeave();
  } else if (was_coordinator) {
    coordinator_->AwaitEnd(SteadyNow() + absl::Nanoseconds(job_.cluster().lease_timeout()) +
                           kEndMargin);
    if (const absl::Status job = coordinator_->outcome(); !job.ok()) outcome = job;
    if (coordinator_->is_here()) {
      const absl::Status written = WriteReport(coordinator_->Status());
      if (outcome.ok()) outcome = written;
    }
  }
  v1::JobStatus last = CurrentStatus();
  // An end of another server has nothing to show but that it is gone, and it may be wanted again at once.
  const bool tells_end = was_coordinator && last.state() == "done";
  {
    absl::MutexLock lock(&mutex_);
    last_status_ = std::move(last);
  }
  if (elects()) control_->StopElection();
  host_->Disconnect();
  server_->SetServing(false);
  server_->Shutdown(was_coordinator && !host_->has_left() ? kLingerAfterEnd
                                                          : absl::Milliseconds(100));
  host_->EndLocalCalls();
  if (metrics_ != nullptr) {
    if (tells_end) last_scrape_.Await(options_.metrics_linger);
    metrics_->Stop();
  }
  page_.reset();
  return outcome;
}

// What others have taken over they are to have heard of before the coordinator goes.
void ServerProcess::FinishLeave() {
  const absl::Time end = SteadyNow() + absl::Nanoseconds(job_.cluster().lease_timeout());
  const auto has_turned = [](Coordinator& coordinator, absl::Time) {
    return coordinator.IsTakingOver() ? absl::UnavailableError("") : absl::OkStatus();
  };
  while (is_coordinator() && SteadyNow() < end && !coordinator_->Run(has_turned).ok()) {
    absl::SleepFor(kDrainPause / 10);
  }
  if (is_coordinator() && job_.cluster().replicas() > 0) {
    host_->Disconnect();
    absl::SleepFor(kTurnTime);
  }
  std::string next;
  if (is_coordinator() && !elects()) {
    const auto away = absl::Nanoseconds(job_.cluster().coordinator().away_timeout());
    next = absl::StrCat("; the coordinator was here, its state is in \"", control_->folder(),
                        "\": all wait for this server to be started again, at most ",
                        absl::FormatDuration(away));
  }
  Log(LogLevel::kInfo, absl::StrCat("server: left the job rank=", options_.rank, next));
}

// Why a SIGTERM has the job drained instead of this server leave: the job could not go on without it. Empty: it
// may leave.
std::string ServerProcess::WhyNotLeave() const {
  if (options_.no_takeover && options_.rank == 0) return "the coordinator is here";
  if (control_ != nullptr && !control_->is_kept()) {
    return "the coordinator is here, and its state is kept nowhere (cluster.coordinator.directory)";
  }
  if (is_replica_ || job_.cluster().replicas() > 0) return "";
  if (options_.no_takeover) return "nobody would start this server again";
  if (!job_.checkpoint().directory().empty()) return "";
  return absl::StrFormat(
      "the parameters of rank %d, %.1f MiB, would be lost: there is no standby "
      "(cluster.replicas) and no checkpoint.directory",
      options_.rank, static_cast<double>(SliceBytes()) / (1 << 20));
}

// The first signal asks to leave or to drain, the second ends the process at once, as a crash.
void ServerProcess::OnSignal(int count) {
  if (last_scrape_.OnAskedToEnd()) return;
  if (count > 1) _exit(1);
  const std::string why_not = WhyNotLeave();
  if (why_not.empty()) {
    Log(LogLevel::kInfo, "server: signal received, leaving the job; again to end at once");
    host_->Leave();
    return;
  }
  Log(LogLevel::kInfo, absl::StrCat("server: signal received, draining the job, as ", why_not,
                                    "; again to end at once"));
  // Draining may wait for a store that does not answer, and whoever asks again is not to wait for that.
  drainer_ = std::thread([this] { DrainJob(); });
}

// Asks the coordinator to drain the job, in this process or in another one.
absl::Status ServerProcess::AskForDrain(const std::string& why) {
  if (is_coordinator()) {
    const absl::Status kept = coordinator_->Run([&](Coordinator& coordinator, absl::Time now) {
      coordinator.Drain(why, now);
      return absl::OkStatus();
    });
    if (kept.ok()) return kept;
  }
  const std::string coordinator = elects() ? host_->coordinator() : place_.coordinator;
  if (coordinator.empty()) return absl::UnavailableError("no coordinator is known");
  const auto stub = v1::Admin::NewStub(OpenChannel(coordinator, Role::kOperator));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(kDrainTime));
  v1::AdminRequest request;
  request.set_reason(why);
  v1::AdminReply reply;
  return FromGrpc(stub->Drain(&context, request, &reply));
}

// The job cannot go on without this server: asks for its end, and keeps serving until then.
void ServerProcess::DrainJob() {
  const std::string why = absl::StrCat("server ", options_.rank, " was asked to end");
  const absl::Time give_up = SteadyNow() + absl::Nanoseconds(job_.cluster().lease_timeout());
  for (int asked = 1;; ++asked) {
    const absl::Status drained = AskForDrain(why);
    if (drained.ok()) return;
    // The call may have been heard, or another server be about to be the coordinator.
    const bool is_unheard = absl::IsUnavailable(drained) || absl::IsDeadlineExceeded(drained);
    const bool gives_up = !is_unheard || (asked > 1 && SteadyNow() >= give_up);
    {
      absl::MutexLock lock(&mutex_);
      if (link_ended_.has_value()) return;
    }
    if (gives_up) {
      Log(LogLevel::kError,
          absl::StrCat("server: ended error=\"not drained: ", drained.message(), "\""));
      _exit(1);
    }
    absl::SleepFor(kDrainPause);
  }
}

// The coordinator's file in place of one that this machine does not have. nullptr: the job wants none, or nobody can be
// asked: whether a server that may be elected is the coordinator, or who is, nobody knows yet.
absl::StatusOr<std::unique_ptr<FetchedTensors>> FetchMissingTensors(const ServerOptions& options,
                                                                    const v1::Job& job) {
  const bool is_missing = IsOfTensors(job.model()) && job.model().tensor_layout().tensors().empty();
  if (!is_missing || MayCoordinate(job, options.rank)) return nullptr;
  TESSERA_RETURN_IF_ERROR(UseSecurity(FilesOf(job.security())));
  // What a limit has room for is known when the file is here, and gRPC asks before.
  if (job.cluster().memory_limit() > 0) SetWindows(Windows::kFollowing);
  TESSERA_ASSIGN_OR_RETURN(
      const ServerPlace place,
      FindPlace(job, {options.rank, options.listen, options.coordinator}, /*is_replica=*/true));
  absl::StatusOr<std::unique_ptr<FetchedTensors>> fetched =
      FetchedTensors::Fetch(OpenControlChannel(place.coordinator),
                            absl::Nanoseconds(job.cluster().coordinator().away_timeout()));
  if (fetched.ok()) return fetched;
  return absl::Status(fetched.status().code(),
                      absl::StrCat("model.tensors: there is no \"", job.model().tensors(),
                                   "\" here, and it cannot be fetched from ", place.coordinator,
                                   ": ", fetched.status().message()));
}

int Refused(const absl::Status& why) {
  std::fprintf(stderr, "tessera-server: %s\n", std::string(why.message()).c_str());
  return 2;
}

}  // namespace

int RunServer(const ServerOptions& options) {
  ConfigureAllocator();
  // Errors are said once, in our words; the environment may ask for gRPC's as well.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  // The threads that a server of any job needs, checked before the first thread, which ends the process where
  // there is none.
  absl::Status limits = CheckProcessLimits(ServerNeeds({}));
  if (limits.ok()) limits = CheckPollStrategy();
  if (!limits.ok()) return Refused(limits);
  // Signals that come before there is anything to drain end the process.
  absl::Mutex mutex;
  ServerProcess* running = nullptr;
  std::optional<int> outcome;  // once all is over but the tearing down
  const Termination termination([&](int count, int) {
    absl::MutexLock lock(&mutex);
    if (outcome && count > 1) _exit(*outcome);
    if (outcome) return;
    if (running == nullptr) {
      Log(LogLevel::kError, "server: ended error=\"signal received before it served\"");
      _exit(1);
    }
    running->OnSignal(count);
  });
  JobOptions checks{/*check_files=*/false};
  checks.may_lack_tensors = true;
  JobReading reading = ReadJobFile(options.job_path, options.overrides, checks);
  absl::StatusOr<std::unique_ptr<FetchedTensors>> fetched = nullptr;
  if (reading.ok()) fetched = FetchMissingTensors(options, reading.job);
  if (!fetched.ok()) return Refused(fetched.status());
  if (reading.ok() && IsOfTensors(reading.job.model())) {
    std::vector<std::string> overrides = options.overrides;
    if (*fetched != nullptr) overrides.push_back("model.tensors=" + (*fetched)->path());
    checks.may_lack_tensors = false;
    reading = ReadJobFile(options.job_path, overrides, checks);
  }
  if (!reading.ok()) {
    std::fputs(FormatJobErrors(reading.errors).c_str(), stderr);
    return 2;
  }
  ServerProcess process(options, reading.job);
  if (const absl::Status status = process.Start(); !status.ok()) {
    return Refused(status);
  }
  {
    absl::MutexLock lock(&mutex);
    running = &process;
  }
  const absl::Status status = process.AwaitEnd();
  absl::MutexLock lock(&mutex);
  outcome = status.ok() ? 0 : 1;
  if (status.ok()) {
    Log(LogLevel::kInfo, absl::StrCat("server: ended rank=", options.rank));
  } else {
    Log(LogLevel::kError,
        absl::StrCat("server: ended rank=", options.rank, " error=\"", status.message(), "\""));
  }
  return *outcome;
}

}  // namespace tessera
