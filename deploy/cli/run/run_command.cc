#include "deploy/cli/run/run_command.h"

#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
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
#include "common/base/process_limits.h"
#include "common/base/steady_clock.h"
#include "common/base/termination.h"
#include "common/config/job_origin.h"
#include "common/config/job_output.h"
#include "common/config/job_print.h"
#include "common/config/job_reader.h"
#include "common/layout/tensor_layout.h"
#include "common/rpc/security.h"
#include "deploy/cli/check_command.h"
#include "deploy/cli/counted.h"
#include "deploy/cli/curves/event_file.h"
#include "deploy/cli/fetch_advice.h"
#include "deploy/cli/how_far.h"
#include "deploy/cli/plan/open_keys.h"
#include "deploy/cli/progress.h"
#include "deploy/cli/report_status.h"
#include "deploy/cli/run/child_process.h"
#include "deploy/cli/run/job_children.h"
#include "deploy/cli/run/pasted_command.h"
#include "deploy/cli/run/run_folders.h"
#include "deploy/cli/run/run_needs.h"
#include "deploy/cli/status_stream.h"
#include "deploy/cli/terminal.h"
#include "deploy/doctor/reachability.h"
#include "server/control/report.h"
#include "server/monitor/metrics_endpoint.h"
#include "server/server_page.h"

namespace tessera {
namespace {

// What the closing table says without checkpoints: the model was only in this command's processes.
constexpr absl::string_view kModelNotKept = "not kept; --set checkpoint.directory=DIR keeps it";

constexpr absl::Duration kPollInterval = absl::Milliseconds(20);
constexpr absl::Duration kServerStartMax = absl::Seconds(60);
constexpr absl::Duration kConnectMax = absl::Seconds(20);
// What is waited for longer is told.
constexpr absl::Duration kToldMin = absl::Seconds(3);
// How long the end of a job is waited for that was asked to end and did not answer.
constexpr absl::Duration kEndHeardMax = absl::Seconds(3);
// How long server 0 is asked to end the job where it does not answer, again and again.
constexpr absl::Duration kUnheardMax = absl::Seconds(10);

// One run of one job, from start to end.
class JobRun {
 public:
  JobRun(const RunOptions& options, const v1::Job& job)
      : options_(options), job_(job), progress_(!options.quiet && CanRedraw()) {}

  absl::Status Run(const RunSignals& signals);

 private:
  absl::Status Train(const RunSignals& signals);
  absl::Status Prepare();
  std::string DrainReason(const RunSignals& signals) const {
    return absl::StrCat(SignalName(signals.last), " to ", options_.command);
  }
  std::vector<std::string> FirstServerFlags() const;
  absl::Status StartAll(const RunSignals& signals);
  absl::Status AwaitFirstServer(const RunSignals& signals);
  bool HasFirstServer();
  void OpenStatus();
  absl::Status Follow(const RunSignals& signals);
  void WriteEvents(const v1::JobStatus& status);
  void Tell(absl::string_view text);
  bool JobHasEnded(absl::Duration patience) const;
  void AwaitChildren(bool failed, const RunSignals& signals);
  // In a job of tensors workers are programs that nobody here knows, unless the command is told.
  bool starts_workers() const {
    return !options_.worker_command.empty() || !IsOfTensors(job_.model());
  }
  bool lingers() const {
    return !options_.metrics.empty() && options_.metrics_linger > absl::ZeroDuration();
  }
  void AwaitLastScrape(const RunSignals& signals);
  std::optional<v1::JobStatus> LastStatus() const;
  absl::Status Conclude(const RunSignals& signals);
  void ReportFailure(const absl::Status& why);
  absl::Status TellOfNoReport(const absl::Status& status, absl::string_view why) const;
  void WriteReport(const v1::JobStatus& status);

  const RunOptions& options_;
  const v1::Job& job_;
  Progress progress_;
  std::unique_ptr<EventWriter>
      events_;  // null where none are wanted, or none can be written any more
  std::unique_ptr<RunFolders> folders_;
  std::unique_ptr<JobChildren> children_;
  std::string coordinator_;
  std::string metrics_;          // of server 0; empty: none
  std::string page_;             // the URL of server 0's; empty: none
  bool is_report_told_ = false;  // by server 0
  absl::Status written_;         // the report
  std::unique_ptr<StatusStream> status_;
};

// Checks limits, security and outputs while there is no child yet, so that an error ends the run with 2 and
// nothing to clean up.
absl::Status JobRun::Prepare() {
  TESSERA_RETURN_IF_ERROR(
      CheckProcessLimits(options_.place == nullptr ? RunNeeds(job_) : ConnectionNeeds(job_)));
  TESSERA_RETURN_IF_ERROR(UseSecurity(FilesOf(job_.security())));
  TESSERA_RETURN_IF_ERROR(
      CheckJobOutput("--report", options_.report_path, options_.job_path, job_));
  // What is served on another machine is that machine's to check.
  if (options_.place == nullptr) {
    TESSERA_RETURN_IF_ERROR(MetricsEndpoint::Check(options_.metrics));
  }
  if (!options_.tensorboard.empty()) {
    events_ = std::make_unique<EventWriter>(options_.tensorboard);
    TESSERA_RETURN_IF_ERROR(events_->Open());
  }
  if (options_.place == nullptr) {
    TESSERA_RETURN_IF_ERROR(ServerPage::Check(options_.page, job_));
  }
  TESSERA_ASSIGN_OR_RETURN(folders_, RunFolders::Open(options_.log_directory));
  const auto tell = [this](const std::string& text) { Tell(text); };
  TESSERA_ASSIGN_OR_RETURN(children_, JobChildren::Create(job_, folders_.get(), tell));
  children_->SetFirstServerFlags(FirstServerFlags());
  if (options_.place != nullptr) {
    TESSERA_RETURN_IF_ERROR(options_.place->PrepareLogs(*folders_));
    children_->SetPlace(options_.place);
    children_->SetJob(options_.place->job_path(), {});
    children_->SetWorkerCommand(options_.worker_command);
    return absl::OkStatus();
  }
  std::error_code error;
  const std::string path =
      std::filesystem::absolute(options_.job_path, error).lexically_normal().string();
  children_->SetJob(error ? options_.job_path : path, options_.overrides);
  children_->SetWorkerCommand(options_.worker_command);
  // The children read it as well. A command that is given cannot be told what was set on top of it.
  const bool is_changed = !options_.worker_command.empty() && !options_.overrides.empty();
  if (!CanBeReadOnce(options_.job_path) && !is_changed) return absl::OkStatus();
  const std::string copy = folders_->PrivatePath("job.yaml");
  children_->SetJob(copy, {});
  return WriteOutput("the job", copy, PrintJob(job_));
}

// The flags that only the first server gets.
std::vector<std::string> JobRun::FirstServerFlags() const {
  std::vector<std::string> flags = {"--origin", OriginText(options_.origin)};
  // The first server has the coordinator, and therefore the whole job's page and metrics.
  if (!options_.page.empty()) flags.insert(flags.end(), {"--page", options_.page});
  if (options_.metrics.empty()) return flags;
  flags.insert(flags.end(), {"--metrics", options_.metrics, "--metrics-linger",
                             absl::FormatDuration(options_.metrics_linger)});
  return flags;
}

// Starts the first server, whose port the others are told, then the other servers, then the workers.
absl::Status JobRun::StartAll(const RunSignals& signals) {
  TESSERA_RETURN_IF_ERROR(children_->StartServer());
  TESSERA_RETURN_IF_ERROR(AwaitFirstServer(signals));
  children_->SetCoordinator(coordinator_);
  for (int rank = 1; rank < job_.cluster().servers().count(); ++rank) {
    TESSERA_RETURN_IF_ERROR(children_->StartServer());
  }
  if (!starts_workers()) return absl::OkStatus();
  for (int rank = 0; rank < job_.cluster().workers(); ++rank) {
    TESSERA_RETURN_IF_ERROR(children_->StartWorker());
  }
  return absl::OkStatus();
}

// Whether the first server is there: it has written its addresses, as its port may be any free one; or, on another
// machine, it takes a connection at the address that was chosen for it.
bool JobRun::HasFirstServer() {
  if (options_.place != nullptr) {
    coordinator_ = options_.place->coordinator();
    metrics_ = options_.metrics;
    // Its URL is made of the flag, as its file of addresses is on that machine.
    if (!options_.page.empty()) {
      const bool has_tls = !job_.security().certificate().empty();
      page_ = absl::StrCat(has_tls ? "https://" : "http://", options_.page, "/");
    }
    return TryConnect(coordinator_, kConnectionPing) == Reach::kOpen;
  }
  const std::optional<ServerAddresses> taken = ReadAddressFile(children_->AddressPath());
  if (!taken.has_value()) return false;
  coordinator_ = taken->services;
  metrics_ = taken->metrics;
  page_ = taken->page;
  return true;
}

absl::Status JobRun::AwaitFirstServer(const RunSignals& signals) {
  const absl::Time begin = SteadyNow();
  bool told = options_.quiet || options_.place == nullptr;
  while (!HasFirstServer()) {
    TESSERA_RETURN_IF_ERROR(children_->CheckServers(std::nullopt));
    if (signals.count > 0) return absl::CancelledError("stopped before the job began");
    const absl::Duration since = SteadyNow() - begin;
    if (!told && since > kToldMin) {
      told = true;
      std::fprintf(stderr, "tessera: waiting for server 0 on %s to listen at %s\n",
                   options_.place->coordinator_host().c_str(), coordinator_.c_str());
    }
    if (since > kServerStartMax) {
      folders_->KeepLogs();
      return absl::DeadlineExceededError(absl::StrCat(
          children_->first_server().name(), " has not come up within ",
          absl::FormatDuration(kServerStartMax),
          options_.place == nullptr
              ? ""
              : absl::StrCat(": nobody answers at ", coordinator_, "; may this machine call it?"),
          "; its log: ", children_->first_server().log_path()));
    }
    absl::SleepFor(absl::Milliseconds(2));
  }
  return absl::OkStatus();
}

// Appends what is new. A disk that is full is told of once, and does not end the job.
void JobRun::WriteEvents(const v1::JobStatus& status) {
  if (events_ == nullptr) return;
  const absl::Status written = events_->Write(status);
  if (written.ok()) return;
  events_ = nullptr;
  progress_.Clear();
  std::fprintf(stderr, "tessera: %s; the job goes on without events\n",
               std::string(written.message()).c_str());
}

void JobRun::Tell(absl::string_view text) {
  folders_->KeepLogs();
  progress_.Clear();
  std::fprintf(stderr, "tessera: %s\n", std::string(text).c_str());
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

// Shows progress, notices children that die and passes signals on, until the job has ended.
absl::Status JobRun::Follow(const RunSignals& signals) {
  bool draining = false;
  absl::Status drained;
  absl::Time drain_begun, drain_tried, shown, server_ended = absl::InfiniteFuture(),
                                              broken = absl::InfiniteFuture();
  std::optional<v1::JobStatus> status;
  while (true) {
    const std::optional<absl::Status> ended = status_->ended();
    if (std::optional<v1::JobStatus> latest = status_->latest()) status = std::move(latest);
    if (status.has_value() && SteadyNow() - shown > absl::Milliseconds(100)) {
      if (!options_.quiet) progress_.Show(*status);
      WriteEvents(*status);
      shown = SteadyNow();
    }
    if (ended.has_value() && absl::IsFailedPrecondition(*ended) && !status.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(
          ended->message(),
          "; the certificate must be valid for the address that is called (security.certificate), ",
          "and signed by security.authority"));
    }
    const std::optional<ChildProcess::Exit> exit = children_->first_server().Poll();
    if (HasReport(status) || (ended.has_value() && (exit.has_value() || !status.has_value()))) {
      return absl::OkStatus();
    }
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
    TESSERA_RETURN_IF_ERROR(children_->CheckWorkers(status));
    if (const absl::Status servers = children_->CheckServers(status); !servers.ok()) {
      // A server ends with the job; why the job did says more.
      return JobHasEnded(kLastWordsMax) ? absl::OkStatus() : servers;
    }
    if (signals.count > 1) return absl::CancelledError("stopped at once; no report");
    if (signals.count == 1 && !draining) {
      draining = true;
      progress_.Clear();
      std::fprintf(stderr, "tessera: stopping after this step; again to stop at once\n");
      drained = status_->Drain(DrainReason(signals));
      drain_begun = drain_tried = SteadyNow();
    }
    // Whether it heard that is not known: it may be asked twice.
    const bool is_unheard = absl::IsUnavailable(drained) || absl::IsDeadlineExceeded(drained);
    if (is_unheard && SteadyNow() - drain_tried > kLastWordsMax) {
      drained = status_->Drain(DrainReason(signals));
      drain_tried = SteadyNow();
    }
    // A job that has just ended cannot be drained: its end is about to be heard.
    if (!drained.ok() && SteadyNow() - drain_begun > (is_unheard ? kUnheardMax : kEndHeardMax)) {
      return drained;
    }
    absl::SleepFor(kPollInterval);
  }
}

// Where the job has failed all that matters is what server 0 has yet to say: others may wait for processes
// that are gone, and end with these.
void JobRun::AwaitChildren(bool failed, const RunSignals& signals) {
  const absl::Time begin = SteadyNow();
  absl::Time end = begin + kChildEndMax;
  bool shortened = false, told = false;
  while (true) {
    const bool all_ended = children_->HaveEnded(/*but_first_server=*/lingers());
    const absl::Time now = SteadyNow();
    const bool all_is_said =
        children_->first_server().Poll().has_value() || (lingers() && HasReport(LastStatus()));
    if (failed && !shortened && all_is_said) {
      shortened = true;
      end = std::min(end, now + kLastWordsMax);
    }
    if (all_ended || now >= end || signals.count > 1) return;
    if (!options_.quiet && !told && now - begin > kLastWordsMax && end - now > kLastWordsMax) {
      told = true;
      progress_.Clear();
      std::fprintf(stderr, "tessera: waiting for %s to end, another %s at most\n",
                   children_->NamesOfRunning().c_str(),
                   absl::FormatDuration(absl::Ceil(end - now, absl::Seconds(1))).c_str());
    }
    absl::SleepFor(absl::Milliseconds(5));
  }
}

// Server 0 goes on serving metrics until whoever watches them has seen the end, and then ends by itself.
void JobRun::AwaitLastScrape(const RunSignals& signals) {
  if (!lingers() || children_->first_server().Poll().has_value()) return;
  bool told = options_.quiet || signals.count > 0, ends = false;
  const absl::Time begin = SteadyNow();
  absl::Time end = begin + options_.metrics_linger + kChildEndMax;
  while (!children_->first_server().Poll().has_value() && SteadyNow() < end) {
    if (!ends && signals.count > 0) {
      ends = true;
      end = std::min(end, SteadyNow() + kChildEndMax);
      children_->first_server().Signal(SIGTERM);
    }
    if (!told && SteadyNow() - begin > kLastWordsMax) {
      told = true;
      progress_.Clear();
      std::fprintf(stderr,
                   "tessera: the job has ended; http://%s/metrics says so until it is scraped, for "
                   "%s at most; Ctrl-C ends that\n",
                   metrics_.c_str(), absl::FormatDuration(options_.metrics_linger).c_str());
    }
    absl::SleepFor(kPollInterval);
  }
}

// Writes the report and keeps the error: how the job ended is told first.
void JobRun::WriteReport(const v1::JobStatus& status) {
  is_report_told_ = true;
  if (!options_.report_path.empty()) {
    written_ = WriteOutput("--report", options_.report_path, status.report_json());
  }
}

std::optional<v1::JobStatus> JobRun::LastStatus() const {
  return WithReport(status_->latest(), children_->ReportPath());
}

// Waits for the children, reads the report and decides how the run ended: what the first server said counts for
// more than how it ended.
absl::Status JobRun::Conclude(const RunSignals& signals) {
  std::optional<v1::JobStatus> status = status_->latest();
  if (status.has_value() && !options_.quiet) progress_.Show(*status);
  AwaitChildren(!HasReport(status) || !status->failure().empty(), signals);
  status = LastStatus();
  if (status.has_value()) WriteEvents(*status);
  const bool reported = HasReport(status);
  if (status.has_value() && !options_.quiet) progress_.Show(*status);
  progress_.Clear();
  if (reported) WriteReport(*status);
  if (status.has_value() && !status->failure().empty()) {
    return absl::AbortedError(FailureText(*status));
  }
  // Nobody goes on without server 0: how the workers ended says no more.
  if (const auto exit = children_->first_server().Poll();
      !reported && exit.has_value() && !exit->ok()) {
    const std::string lost =
        status.has_value() && status->generation() > 0 ? children_->LostWith(*exit) : std::string();
    return ChildError(children_->first_server(), *exit, ", and with it the job" + lost);
  }
  TESSERA_RETURN_IF_ERROR(children_->CheckWorkers(status));
  // There may have been no room for the server's own copy of the report.
  if (reported) children_->ForgiveFirstServer();
  TESSERA_RETURN_IF_ERROR(children_->CheckServers(status));
  if (!reported) {
    const std::optional<absl::Status> ended = status_->ended();
    return absl::AbortedError(absl::StrCat(
        "the job ended without a report; ", ended.has_value() ? std::string(ended->message()) : "",
        "; server 0's last lines:\n", children_->first_server().LogTail(8)));
  }
  // The table has most of what the report has, also where that could not be written.
  const std::string report = written_.ok() ? options_.report_path : "could not be written";
  if (!options_.quiet) {
    const bool is_kept = !job_.checkpoint().directory().empty();
    std::fputs(
        Progress::Summary(*status, report, TextWidth(), is_kept ? "" : kModelNotKept).c_str(),
        stdout);
  }
  std::fflush(stdout);
  return written_;
}

// Writes the report of a job that this process ends: no server knows as soon as it that a child is gone, and the
// lease is not waited for.
void JobRun::ReportFailure(const absl::Status& why) {
  const bool is_wanted = !options_.report_path.empty() || lingers();
  if (!is_wanted || children_->first_server().Poll().has_value()) return;
  const absl::string_view text = why.message();
  if (!status_->Fail(std::string(text.substr(0, text.find(kLastLines)))).ok()) return;
  absl::Time limit = SteadyNow() + kEndHeardMax;
  std::optional<v1::JobStatus> status;
  do {
    absl::SleepFor(kPollInterval);
    status = status_->latest();
    // The report may be a lease away, which is not waited for.
    if (status.has_value() && !status->failure().empty()) {
      limit = std::min(limit, SteadyNow() + kLastWordsMax);
    }
  } while (!HasReport(status) && !status_->ended().has_value() && SteadyNow() < limit);
  if (!status.has_value() || status->failure().empty()) return;
  // Server 0 tells it once it has given up those that are gone.
  if (!HasReport(status)) status->set_report_json(ReportJson(*status));
  WriteReport(*status);
}

// `status`, and where a report was asked for and is not written, why.
absl::Status JobRun::TellOfNoReport(const absl::Status& status, absl::string_view why) const {
  const bool is_wanted = !options_.report_path.empty() && !is_report_told_;
  // Who stops it at once is told so.
  if (status.ok() || absl::IsCancelled(status) || !is_wanted) return status;
  std::string text = absl::StrCat(status.message(), "\ntessera: no report is written: ", why);
  std::error_code error;
  // A report that is there already would be taken for this job's.
  if (std::filesystem::is_regular_file(options_.report_path, error)) {
    absl::StrAppend(&text, "; \"", options_.report_path, "\" is an earlier job's");
  }
  return absl::Status(status.code(), text);
}

// Trains, and then says where the logs are and removes what nobody wants.
absl::Status JobRun::Run(const RunSignals& signals) {
  absl::Status status = Train(signals);
  // Whoever keeps a folder says so, however the run ends.
  if (folders_ != nullptr && folders_->keeps_logs()) {
    std::fprintf(stderr, "tessera: logs are in %s\n", folders_->logs().c_str());
  }
  return status;
}

// Starts the children and follows the job to its end.
absl::Status JobRun::Train(const RunSignals& signals) {
  constexpr absl::string_view kNotBegun = "the job has not begun";
  TESSERA_RETURN_IF_ERROR(Prepare());
  if (const absl::Status started = StartAll(signals); !started.ok()) {
    return TellOfNoReport(started, kNotBegun);
  }
  OpenStatus();
  if (!options_.quiet) {
    progress_.Say(absl::StrCat(
        job_.name(), ": ", Counted(job_.cluster().servers().count(), "server"), ", ",
        Counted(job_.cluster().workers(), "worker"), "; status: ", ThisProgram(options_.program),
        " status ", coordinator_, SecurityFlags(FilesOf(job_.security())), " --watch"));
    if (!starts_workers()) {
      progress_.Say(absl::StrCat(
          job_.name(), ": waiting for ", Counted(job_.cluster().workers(), "worker"),
          ": start your own programs, which join with the client library (docs/own_models.md), as "
          "TESSERA_COORDINATOR=",
          coordinator_, " says; --worker COMMAND starts them here"));
    }
    if (!page_.empty()) progress_.Say(absl::StrCat(job_.name(), ": page: ", page_));
    if (!metrics_.empty()) {
      progress_.Say(absl::StrCat(job_.name(), ": metrics: http://", metrics_, "/metrics"));
    }
  }
  absl::Status status = Follow(signals);
  if (status.ok()) {
    status = Conclude(signals);
  } else if (!absl::IsCancelled(status) && !absl::IsInvalidArgument(status)) {
    ReportFailure(status);
  }
  if (is_report_told_) AwaitLastScrape(signals);
  if (status.ok() && lingers()) {
    children_->ForgiveFirstServer();
    status = children_->CheckServers(LastStatus());
  }
  // How the job ended is told last; this would be lost beside it.
  if (status != written_ && !written_.ok()) Tell(written_.message());
  if (absl::IsInvalidArgument(status)) {
    // Whatever is refused is refused before it takes part.
    status = TellOfNoReport(status, kNotBegun);
  } else {
    const char* const why =
        children_->first_server().Poll().has_value() ? "is gone" : "does not tell it";
    status =
        TellOfNoReport(status, absl::StrCat("server 0, which alone has what it would say, ", why));
  }
  if (!status.ok()) {
    children_->TellDeaths(status.message());
    folders_->KeepLogs();
    progress_.Clear();
    children_->Kill();
  }
  return status;
}

}  // namespace

absl::Status TrainJob(const RunOptions& options, const v1::Job& job, const RunSignals& signals) {
  JobRun run(options, job);
  return run.Run(signals);
}

int ExitCodeOf(const absl::Status& status, const RunSignals& signals) {
  if (signals.count > 0) return kSignalExitCode + signals.last;
  if (status.ok()) return 0;
  return absl::IsInvalidArgument(status) ? 2 : 1;
}

int ReadJobToStart(const Machines& machines, const JobOptions& checks, RunOptions* options,
                   JobReading* reading) {
  *reading = ReadJobFile(options->job_path, options->overrides, MayBeOpen(checks));
  if (!reading->ok()) {
    TellJobErrors(*reading);
    return 2;
  }
  const size_t given = options->overrides.size();
  const absl::StatusOr<std::string> chosen =
      CloseOpenKeys(machines, options->job_path, checks, &options->overrides, reading);
  if (!chosen.ok()) {
    std::fprintf(stderr, "tessera: %s\n", std::string(chosen.status().message()).c_str());
    return absl::IsInvalidArgument(chosen.status()) ? 2 : 1;
  }
  // The report says with which keys the job began, whoever gave them.
  for (size_t i = given; i < options->overrides.size(); ++i) {
    options->origin.add_overrides(options->overrides[i]);
  }
  if (!options->quiet && !chosen->empty()) {
    std::fprintf(stderr, "tessera: note: %s\n", chosen->c_str());
  }
  return 0;
}

int RunJob(RunOptions options) {
  RunSignals signals;
  std::atomic<bool> has_begun{false};
  const Termination termination([&](int count, int signal) {
    // There is nothing to end, and who reads the job may wait for a pipe or a disk.
    if (!has_begun) EndBySignal(signal);
    signals.last = signal;
    signals.count = count;
  });
  JobReading reading;
  const int refused = ReadJobToStart(OneMachine(), JobOptions{}, &options, &reading);
  if (refused != 0) return refused;
  if (!options.quiet) {
    for (const std::string& note : NotesOfCheck(reading.job)) {
      std::fprintf(stderr, "tessera: note: %s\n", note.c_str());
    }
  }
  has_begun = true;
  const absl::Status status = TrainJob(options, reading.job, signals);
  if (!status.ok()) std::fprintf(stderr, "tessera: %s\n", std::string(status.message()).c_str());
  return ExitCodeOf(status, signals);
}

}  // namespace tessera
