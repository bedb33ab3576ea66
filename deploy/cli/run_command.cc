#include "deploy/cli/run_command.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/address_file.h"
#include "common/base/check.h"
#include "common/base/output_file.h"
#include "common/base/steady_clock.h"
#include "common/base/termination.h"
#include "common/config/job_print.h"
#include "common/config/job_reader.h"
#include "common/method/recipe.h"
#include "common/rpc/security.h"
#include "deploy/cli/child_process.h"
#include "deploy/cli/counted.h"
#include "deploy/cli/find_program.h"
#include "deploy/cli/progress.h"
#include "deploy/cli/report_path.h"
#include "deploy/cli/report_status.h"
#include "deploy/cli/run_folders.h"
#include "deploy/cli/status_stream.h"
#include "server/control/report.h"
#include "server/monitor/metrics_endpoint.h"

namespace tessera {
namespace {

constexpr absl::Duration kPollInterval = absl::Milliseconds(20);
constexpr absl::Duration kServerStartMax = absl::Seconds(60);
constexpr absl::Duration kConnectMax = absl::Seconds(20);
// After the job's end, or the second Ctrl-C: how long children may take before they are killed.
constexpr absl::Duration kChildEndMax = absl::Seconds(10);
// In the run's private folder, by server 0.
constexpr char kAddressFile[] = "server-0.address";
constexpr char kReportFile[] = "report.json";
// For the end to be heard of a job that was asked to end and did not answer.
constexpr absl::Duration kEndHeardMax = absl::Seconds(3);
// For server 0 to be asked to end the job where it does not answer, again and again.
constexpr absl::Duration kUnheardMax = absl::Seconds(10);
// For the coordinator to say how the job stands, once another process has ended.
constexpr absl::Duration kLastWordsMax = absl::Seconds(1);

// One run of one job: its children, from start to end.
class JobRun {
 public:
  JobRun(const RunOptions& options, const v1::Job& job)
      : options_(options), job_(job), progress_(!options.quiet && isatty(STDOUT_FILENO)) {}

  absl::Status Run(const std::atomic<int>& signals);
  ~JobRun();

 private:
  absl::Status Prepare();
  absl::Status StartServer(int rank);
  absl::Status AwaitFirstServer(const std::atomic<int>& signals);
  absl::Status StartWorker(int rank);
  void OpenStatus();
  absl::Status Follow(const std::atomic<int>& signals);
  // A server that ended with an error, where the job cannot go on without it.
  absl::Status CheckServers(const std::optional<v1::JobStatus>& status);
  // Workers that ended with an error are told of; an error where the job cannot begin or go on
  // without them.
  absl::Status CheckWorkers(const std::optional<v1::JobStatus>& status);
  // `rank` has ended, and members have made steps since the coordinator knew it; or the job has ended.
  bool OthersGoOn(size_t rank, const v1::JobStatus& status);
  void Tell(const absl::Status& of);
  bool JobHasEnded(absl::Duration patience) const;
  void AwaitChildren(bool failed, const std::atomic<int>& signals);
  std::optional<v1::JobStatus> LastStatus() const;
  absl::Status Conclude(const std::atomic<int>& signals);
  std::vector<std::string> CommonArguments() const;
  std::string LogPath(const std::string& name) const {
    return absl::StrCat(folders_->logs(), "/", name, ".log");
  }
  void ReportFailure(const absl::Status& why);
  void WriteReport(const v1::JobStatus& status);

  const RunOptions& options_;
  const v1::Job& job_;
  std::string job_path_ = options_.job_path;  // of the children
  std::vector<std::string> overrides_ = options_.overrides;
  Progress progress_;
  std::string server_program_;
  std::string worker_program_;
  std::unique_ptr<RunFolders> folders_;
  std::string coordinator_;
  std::string metrics_;  // of server 0; empty: none
  bool servers_may_go_ = false;  // they are replicas, or have standbys
  std::vector<ChildProcess> servers_;
  std::vector<bool> server_noticed_;
  std::vector<ChildProcess> workers_;
  struct EndedWorker {
    absl::Time seen = absl::InfiniteFuture();
    std::optional<std::map<uint64_t, uint64_t>> steps;  // of members, in the first status without it
    bool is_told = false;
    bool is_over = false;  // the others go on, and that is told, too
  };
  std::vector<EndedWorker> ended_;  // by rank
  absl::Time workers_ended_ = absl::InfiniteFuture();
  bool is_report_told_ = false;  // by server 0
  absl::Status written_;  // the report
  std::unique_ptr<StatusStream> status_;
};

JobRun::~JobRun() {
  status_.reset();
  workers_.clear();
  servers_.clear();
}

absl::Status JobRun::Prepare() {
  TESSERA_RETURN_IF_ERROR(UseSecurity(FilesOf(job_.security())));
  TESSERA_ASSIGN_OR_RETURN(server_program_, FindProgram("tessera-server", "server"));
  TESSERA_ASSIGN_OR_RETURN(worker_program_, FindProgram("tessera-worker", "worker"));
  TESSERA_ASSIGN_OR_RETURN(const Recipe recipe, RecipeFor(job_));
  servers_may_go_ = recipe.placement == Placement::kReplicated || job_.cluster().replicas() > 0;
  TESSERA_RETURN_IF_ERROR(CheckReportPath(options_.report_path, options_.job_path, job_));
  TESSERA_RETURN_IF_ERROR(MetricsEndpoint::Check(options_.metrics));
  TESSERA_ASSIGN_OR_RETURN(folders_, RunFolders::Open(options_.log_directory));
  if (!CanBeReadOnce(job_path_)) return absl::OkStatus();  // The children read it as well.
  job_path_ = folders_->PrivatePath("job.yaml");
  overrides_.clear();
  return WriteOutput("the job", job_path_, PrintJob(job_));
}

std::vector<std::string> JobRun::CommonArguments() const {
  std::vector<std::string> arguments = {"--job", job_path_};
  for (const std::string& override : overrides_) arguments.insert(arguments.end(), {"--set", override});
  // All of them end with one: there is nobody to elect.
  if (job_.cluster().coordinator().etcd_size() > 0) {
    arguments.insert(arguments.end(), {"--set", "cluster.coordinator.etcd=[]"});
  }
  if (!coordinator_.empty()) {
    arguments.push_back("--coordinator");
    arguments.push_back(coordinator_);
  }
  return arguments;
}

absl::Status JobRun::StartServer(int rank) {
  ChildProcess::Options child;
  child.name = absl::StrCat("server ", rank);
  child.program = server_program_;
  child.arguments = CommonArguments();
  child.arguments.insert(child.arguments.end(), {"--rank", absl::StrCat(rank)});
  // Without addresses in the job, servers take free ports here and tell each other through the
  // coordinator.
  if (job_.cluster().servers().addresses().empty()) {
    child.arguments.insert(child.arguments.end(), {"--listen", "127.0.0.1:0"});
  }
  if (rank == 0) {
    // Nobody here would start it again.
    child.arguments.push_back("--no-takeover");
    child.arguments.insert(child.arguments.end(), {"--address-file", folders_->PrivatePath(kAddressFile)});
    child.arguments.insert(child.arguments.end(), {"--report", folders_->PrivatePath(kReportFile)});
    // It has the coordinator, and so the whole job's.
    if (!options_.metrics.empty()) child.arguments.insert(child.arguments.end(), {"--metrics", options_.metrics});
  }
  child.log_path = LogPath(absl::StrCat("server-", rank));
  TESSERA_ASSIGN_OR_RETURN(ChildProcess started, ChildProcess::Start(std::move(child)));
  servers_.push_back(std::move(started));
  server_noticed_.push_back(false);
  return absl::OkStatus();
}

absl::Status JobRun::AwaitFirstServer(const std::atomic<int>& signals) {
  const std::string path = folders_->PrivatePath(kAddressFile);
  const absl::Time limit = SteadyNow() + kServerStartMax;
  while (true) {
    if (const std::optional<ServerAddresses> taken = ReadAddressFile(path)) {
      coordinator_ = taken->services;
      metrics_ = taken->metrics;
      return absl::OkStatus();
    }
    TESSERA_RETURN_IF_ERROR(CheckServers(std::nullopt));
    if (signals > 0) return absl::CancelledError("stopped before the job began");
    if (SteadyNow() > limit) {
      folders_->KeepLogs();
      return absl::DeadlineExceededError(absl::StrCat("server 0 has not come up within ",
                                                      absl::FormatDuration(kServerStartMax),
                                                      "; its log: ", LogPath("server-0")));
    }
    absl::SleepFor(absl::Milliseconds(2));
  }
}

absl::Status JobRun::StartWorker(int rank) {
  ChildProcess::Options child;
  child.name = absl::StrCat("worker ", rank);
  child.program = worker_program_;
  child.arguments = CommonArguments();
  child.arguments.insert(child.arguments.end(), {"--rank", absl::StrCat(rank)});
  child.log_path = LogPath(absl::StrCat("worker-", rank));
  TESSERA_ASSIGN_OR_RETURN(ChildProcess started, ChildProcess::Start(std::move(child)));
  workers_.push_back(std::move(started));
  ended_.emplace_back();
  return absl::OkStatus();
}

absl::Status JobRun::CheckServers(const std::optional<v1::JobStatus>& status) {
  const bool begun = status.has_value() && status->generation() > 0;
  for (size_t i = 0; i < servers_.size(); ++i) {
    const std::optional<ChildProcess::Exit> exit = servers_[i].Poll();
    if (!exit.has_value() || exit->ok() || server_noticed_[i]) continue;
    if (!servers_may_go_ || i == 0 || !begun) return ChildError(servers_[i], *exit, "");
    server_noticed_[i] = true;
    Tell(ChildError(servers_[i], *exit, "; the others go on"));
  }
  return absl::OkStatus();
}

absl::Status JobRun::CheckWorkers(const std::optional<v1::JobStatus>& status) {
  // A plan is made once all are there.
  const bool begun = status.has_value() && status->generation() > 0;
  const absl::Duration lease = absl::Nanoseconds(job_.cluster().lease_timeout());
  bool all_ended = true;
  for (size_t i = 0; i < workers_.size(); ++i) {
    const std::optional<ChildProcess::Exit> exit = workers_[i].Poll();
    all_ended = all_ended && exit.has_value();
    EndedWorker& ended = ended_[i];
    if (!exit.has_value() || exit->ok() || ended.is_over) continue;
    ended.seen = std::min(ended.seen, SteadyNow());
    const absl::Duration since = SteadyNow() - ended.seen;
    // What is known of the job may be older than the worker's end.
    if (exit->code == 2 || (!begun && since > kLastWordsMax)) {
      return ChildError(workers_[i], *exit, ", and the job cannot begin without it");
    }
    if (!begun) continue;
    if (!status->failure().empty()) continue;  // Nobody goes on, and why is said at the end.
    // The others may be about to end for the same reason. Where they neither go on nor fail for long, what is
    // known is said.
    ended.is_over = OthersGoOn(i, *status);
    if (!ended.is_over && (ended.is_told || since <= lease + kLastWordsMax)) continue;
    Tell(ended.is_told ? absl::AbortedError(absl::StrCat("the others go on without ", workers_[i].name()))
                       : ChildError(workers_[i], *exit, ended.is_over ? "; the others go on" : ""));
    ended.is_told = true;
  }
  if (!all_ended) return absl::OkStatus();
  // The servers notice by themselves; but not one that hangs.
  if (workers_ended_ == absl::InfiniteFuture()) workers_ended_ = SteadyNow();
  const absl::Duration limit = lease + kChildEndMax;
  if (SteadyNow() - workers_ended_ < limit) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("all workers have ended, but the servers have not within ",
                                         absl::FormatDuration(limit), "; server 0's last lines:\n",
                                         servers_[0].LogTail(8)));
}

bool JobRun::OthersGoOn(size_t rank, const v1::JobStatus& status) {
  if (HasReport(status)) return true;
  std::map<uint64_t, uint64_t> steps;
  for (const v1::MemberStatus& member : status.members()) {
    if (member.state() != "training" && member.state() != "evaluating") continue;
    if (member.rank() == rank) return false;
    steps[member.member()] = member.progress().step();
  }
  std::optional<std::map<uint64_t, uint64_t>>& before = ended_[rank].steps;
  if (!before.has_value()) before = steps;
  return std::any_of(before->begin(), before->end(), [&steps](const auto& member) {
    const auto now = steps.find(member.first);
    return now != steps.end() && now->second > member.second;
  });
}

void JobRun::Tell(const absl::Status& of) {
  folders_->KeepLogs();
  progress_.Clear();
  std::fprintf(stderr, "tessera: %s\n", std::string(of.message()).c_str());
}

// Whether server 0 has said how the job ended. One that is about to say so gets `patience`.
bool JobRun::JobHasEnded(absl::Duration patience) const {
  const absl::Time limit = SteadyNow() + patience;
  while (!status_->ended().has_value() && SteadyNow() < limit) absl::SleepFor(kPollInterval);
  const std::optional<v1::JobStatus> status = LastStatus();
  return HasReport(status) || (status.has_value() && !status->failure().empty());
}

void JobRun::OpenStatus() {
  status_ = std::make_unique<StatusStream>(coordinator_, absl::Milliseconds(200), kConnectMax);
}

// Until the job has ended: shows progress, notices children that die, passes signals on.
absl::Status JobRun::Follow(const std::atomic<int>& signals) {
  bool draining = false;
  absl::Status drained;
  absl::Time drain_begun, drain_tried, shown, server_ended = absl::InfiniteFuture(), broken = absl::InfiniteFuture();
  std::optional<v1::JobStatus> status;
  while (true) {
    const std::optional<absl::Status> ended = status_->ended();
    if (std::optional<v1::JobStatus> latest = status_->latest()) status = std::move(latest);
    if (status.has_value() && !options_.quiet && SteadyNow() - shown > absl::Milliseconds(100)) {
      progress_.Show(*status);
      shown = SteadyNow();
    }
    if (ended.has_value() && absl::IsFailedPrecondition(*ended) && !status.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(
          ended->message(), "; the certificate must be valid for the address that is called (security.certificate), ",
          "and signed by security.authority"));
    }
    const std::optional<ChildProcess::Exit> exit = servers_[0].Poll();
    if (HasReport(status) || (ended.has_value() && (exit.has_value() || !status.has_value()))) return absl::OkStatus();
    if (exit.has_value() && exit->ok()) {
      server_ended = std::min(server_ended, SteadyNow());
      if (SteadyNow() - server_ended > kLastWordsMax) return absl::OkStatus();
    }
    // This process was stopped for so long, by Ctrl-Z perhaps, that the server closed the connection.
    if (ended.has_value()) broken = std::min(broken, SteadyNow());
    if (SteadyNow() - broken > kLastWordsMax) {
      broken = absl::InfiniteFuture();
      OpenStatus();
    }
    TESSERA_RETURN_IF_ERROR(CheckWorkers(status));
    if (const absl::Status servers = CheckServers(status); !servers.ok()) {
      // A server ends with the job; why the job did says more.
      return JobHasEnded(kLastWordsMax) ? absl::OkStatus() : servers;
    }
    if (signals > 1) return absl::CancelledError("stopped at once; no report");
    if (signals == 1 && !draining) {
      draining = true;
      progress_.Clear();
      std::fprintf(stderr, "tessera: stopping after this step; again to stop at once\n");
      drained = status_->Drain("interrupted");
      drain_begun = drain_tried = SteadyNow();
    }
    // Whether it heard that is not known: it may be asked twice.
    const bool is_unheard = absl::IsUnavailable(drained) || absl::IsDeadlineExceeded(drained);
    if (is_unheard && SteadyNow() - drain_tried > kLastWordsMax) {
      drained = status_->Drain("interrupted");
      drain_tried = SteadyNow();
    }
    // A job that has just ended cannot be drained: its end is about to be heard.
    if (!drained.ok() && SteadyNow() - drain_begun > (is_unheard ? kUnheardMax : kEndHeardMax)) return drained;
    absl::SleepFor(kPollInterval);
  }
}

// Where the job has failed all that matters is what server 0 has yet to say: others may wait for processes
// that are gone, and end with these.
void JobRun::AwaitChildren(bool failed, const std::atomic<int>& signals) {
  const absl::Time begin = SteadyNow();
  absl::Time end = begin + kChildEndMax;
  bool shortened = false, told = false;
  while (true) {
    bool all_ended = true;
    for (ChildProcess& child : workers_) all_ended = child.Poll().has_value() && all_ended;
    for (ChildProcess& child : servers_) all_ended = child.Poll().has_value() && all_ended;
    const absl::Time now = SteadyNow();
    if (failed && !shortened && servers_[0].Poll().has_value()) {
      shortened = true;
      end = std::min(end, now + kLastWordsMax);
    }
    if (all_ended || now >= end || signals > 1) return;
    if (!options_.quiet && !told && now - begin > kLastWordsMax && end - now > kLastWordsMax) {
      told = true;
      progress_.Clear();
      std::fprintf(stderr, "tessera: waiting for %s to end, another %s at most\n",
                   NamesOfRunning({&servers_, &workers_}).c_str(),
                   absl::FormatDuration(absl::Ceil(end - now, absl::Seconds(1))).c_str());
    }
    absl::SleepFor(absl::Milliseconds(5));
  }
}

void JobRun::WriteReport(const v1::JobStatus& status) {
  is_report_told_ = true;
  if (!options_.report_path.empty()) written_ = WriteOutput("--report", options_.report_path, status.report_json());
}

std::optional<v1::JobStatus> JobRun::LastStatus() const {
  return WithReport(status_->latest(), folders_->PrivatePath(kReportFile));
}

absl::Status JobRun::Conclude(const std::atomic<int>& signals) {
  std::optional<v1::JobStatus> status = status_->latest();
  if (status.has_value() && !options_.quiet) progress_.Show(*status);
  AwaitChildren(!HasReport(status) || !status->failure().empty(), signals);
  status = LastStatus();
  const bool reported = HasReport(status);
  if (status.has_value() && !options_.quiet) progress_.Show(*status);
  progress_.Clear();
  if (reported) WriteReport(*status);
  if (status.has_value() && !status->failure().empty()) {
    return absl::AbortedError(absl::StrCat("the job has failed: ", status->failure()));
  }
  // Without server 0 nobody goes on: how the workers ended says no more.
  if (const auto exit = servers_[0].Poll(); !reported && exit.has_value() && !exit->ok()) {
    return ChildError(servers_[0], *exit, ", and with it the job");
  }
  TESSERA_RETURN_IF_ERROR(CheckWorkers(status));
  // It has said how the job ended; its own copy of the report may have had no room.
  if (const auto exit = servers_[0].Poll(); reported && exit.has_value()) server_noticed_[0] = exit->signal == 0;
  TESSERA_RETURN_IF_ERROR(CheckServers(status));
  if (!reported) {
    const std::optional<absl::Status> ended = status_->ended();
    return absl::AbortedError(absl::StrCat("the job ended without a report; ",
                                           ended.has_value() ? std::string(ended->message()) : "",
                                           "; server 0's last lines:\n", servers_[0].LogTail(8)));
  }
  // The table has most of what the report has, also where that could not be written.
  const std::string report = written_.ok() ? options_.report_path : "could not be written";
  if (!options_.quiet) std::fputs(Progress::Summary(*status, report).c_str(), stdout);
  std::fflush(stdout);
  return written_;
}

// Of a job that this process ends: nobody is told as soon as it that a child is gone, and the lease is not waited for.
void JobRun::ReportFailure(const absl::Status& why) {
  if (options_.report_path.empty() || servers_[0].Poll().has_value()) return;
  const absl::string_view text = why.message();
  if (!status_->Stop(std::string(text.substr(0, text.find(kLastLines)))).ok()) return;
  absl::Time limit = SteadyNow() + kEndHeardMax;
  std::optional<v1::JobStatus> status;
  do {
    absl::SleepFor(kPollInterval);
    status = status_->latest();
    // The report may be a lease away, which is not waited for.
    if (status.has_value() && !status->failure().empty()) limit = std::min(limit, SteadyNow() + kLastWordsMax);
  } while (!HasReport(status) && !status_->ended().has_value() && SteadyNow() < limit);
  if (!status.has_value() || status->failure().empty()) return;
  // Server 0 tells it once it has given up those that are gone.
  if (!HasReport(status)) status->set_report_json(ReportJson(*status));
  WriteReport(*status);
}

absl::Status JobRun::Run(const std::atomic<int>& signals) {
  TESSERA_RETURN_IF_ERROR(Prepare());
  TESSERA_RETURN_IF_ERROR(StartServer(0));
  TESSERA_RETURN_IF_ERROR(AwaitFirstServer(signals));
  for (int rank = 1; rank < job_.cluster().servers().count(); ++rank)
    TESSERA_RETURN_IF_ERROR(StartServer(rank));
  for (int rank = 0; rank < job_.cluster().workers(); ++rank)
    TESSERA_RETURN_IF_ERROR(StartWorker(rank));
  OpenStatus();
  if (!options_.quiet) {
    progress_.Say(absl::StrCat(job_.name(), ": ",
                               Counted(job_.cluster().servers().count(), "server"), ", ",
                               Counted(job_.cluster().workers(), "worker"),
                               "; status: tessera status ", coordinator_, " --watch"));
    if (!metrics_.empty()) progress_.Say(absl::StrCat(job_.name(), ": metrics: http://", metrics_, "/metrics"));
  }
  absl::Status status = Follow(signals);
  const bool may_report = !absl::IsCancelled(status) && !absl::IsInvalidArgument(status);
  if (status.ok()) {
    status = Conclude(signals);
  } else if (may_report) {
    ReportFailure(status);
  }
  // How the job ended is told last; this would be lost beside it.
  if (status != written_ && !written_.ok()) Tell(written_);
  if (!status.ok() && may_report && !options_.report_path.empty() && !is_report_told_) {
    status = absl::Status(status.code(), absl::StrCat(status.message(), "\ntessera: no report is written: server 0, ",
                                                      "which alone has what it would say, ",
                                                      servers_[0].Poll().has_value() ? "is gone" : "does not tell it"));
  }
  if (!status.ok()) {
    folders_->KeepLogs();
    progress_.Clear();
    for (ChildProcess& child : workers_) child.Signal(SIGKILL);
    for (ChildProcess& child : servers_) child.Signal(SIGKILL);
  }
  if (folders_->keeps_logs()) {
    std::fprintf(stderr, "tessera: logs are in %s\n", folders_->logs().c_str());
  }
  return status;
}

}  // namespace

int RunJob(const RunOptions& options) {
  std::atomic<int> signals{0};
  const Termination termination([&signals](int count) { signals = count; });
  const JobReading reading = ReadJobFile(options.job_path, options.overrides, JobOptions{});
  if (!reading.ok()) {
    std::fputs(FormatJobErrors(reading.errors).c_str(), stderr);
    return 2;
  }
  JobRun run(options, reading.job);
  const absl::Status status = run.Run(signals);
  if (status.ok()) return 0;
  std::fprintf(stderr, "tessera: %s\n", std::string(status.message()).c_str());
  return absl::IsInvalidArgument(status) ? 2 : 1;
}

}  // namespace tessera
