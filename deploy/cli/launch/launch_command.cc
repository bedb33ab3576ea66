#include "deploy/cli/launch/launch_command.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/base/termination.h"
#include "common/config/job_reader.h"
#include "common/method/recipe.h"
#include "deploy/cli/check_command.h"
#include "deploy/cli/counted.h"
#include "deploy/cli/flag_reader.h"
#include "deploy/cli/launch/data_copy.h"
#include "deploy/cli/launch/doctor_answer.h"
#include "deploy/cli/launch/host_calls.h"
#include "deploy/cli/launch/host_list.h"
#include "deploy/cli/launch/host_probe.h"
#include "deploy/cli/launch/job_files.h"
#include "deploy/cli/launch/launch_bundle.h"
#include "deploy/cli/launch/placement.h"
#include "deploy/cli/launch/remote_place.h"
#include "deploy/cli/plan/open_keys.h"
#include "deploy/cli/run/run_folders.h"
#include "deploy/cli/run/shell_word.h"

namespace tessera {
namespace {

// ssh gives a host that is silent up sooner.
constexpr absl::Duration kProbeMax = absl::Seconds(30);
// Networks may be slow, and data fill disks.
constexpr absl::Duration kCopyMax = absl::Hours(12);
// The doctor reads all data.
constexpr absl::Duration kDoctorMax = absl::Minutes(30);
constexpr absl::Duration kEndMax = absl::Seconds(20);

// "Linux x86_64", as `uname -s -m` has it.
std::string OwnMachine() {
  utsname name = {};
  uname(&name);
  return absl::StrCat(name.sysname, " ", name.machine);
}

// The bytes of a folder's files.
int64_t BytesOf(const std::string& folder) {
  int64_t bytes = 0;
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator entry(folder, error), end;
       !error && entry != end; entry.increment(error)) {
    if (entry->is_regular_file(error)) bytes += static_cast<int64_t>(entry->file_size(error));
  }
  return bytes;
}

// One launch of one job, from the first call to the last. One thread.
class JobLaunch {
 public:
  JobLaunch(const LaunchOptions& options, v1::Job job, absl::Duration grace,
            const RunSignals& signals)
      : options_(options), job_(std::move(job)), grace_(grace), signals_(signals) {}

  absl::Status Run();

 private:
  // What is wrong, of which host.
  using Faults = std::vector<std::pair<std::string, std::string>>;

  absl::Status Prepare();
  absl::StatusOr<std::vector<LaunchHost>> ReadHosts() const;
  absl::Status FindAddresses();
  absl::Status Probe();
  absl::Status CopyBundle();
  absl::Status PlaceProcesses();
  absl::Status CopyJob();
  absl::Status CopyData();
  absl::Status Examine();
  absl::Status Train();
  void EndAll();

  size_t size() const { return hosts_.size(); }
  // A call that runs a script on a host; with `input`, a command here whose output the script reads.
  HostCall CallOf(size_t host, absl::string_view script, const std::string& input = "") const;
  absl::StatusOr<std::vector<HostAnswer>> Call(absl::string_view what,
                                               const std::vector<HostCall>& calls,
                                               absl::Duration limit) {
    return calls_->Call(what, calls, limit, &signals_);
  }
  // Makes calls of which each has to end well; `what` is what they do: "the copy of the bundle".
  absl::Status CallAll(absl::string_view what, const std::vector<HostCall>& calls,
                       absl::Duration limit);
  static Faults FaultOf(const HostAnswer& answer, absl::string_view what);
  absl::Status Refuse(const Faults& faults) const;

  const LaunchOptions& options_;
  v1::Job job_;
  const absl::Duration grace_;
  const RunSignals& signals_;
  std::unique_ptr<RunFolders> folders_;  // of what is copied
  std::unique_ptr<HostCalls> calls_;
  std::optional<Ssh> ssh_;
  std::optional<LaunchBundle> bundle_;
  std::optional<DataCopy> data_;
  std::optional<Recipe> recipe_;
  std::string id_;
  std::vector<LaunchHost> hosts_;
  std::vector<HostFacts> facts_;
  JobPlacement placement_;
  std::vector<ReadyHost> ready_;  // by host, once it may have files of the job
};

// The hosts of the one flag that was given.
absl::StatusOr<std::vector<LaunchHost>> JobLaunch::ReadHosts() const {
  if (!options_.hosts.empty() && !options_.hosts_file.empty()) {
    return absl::InvalidArgumentError("tessera launch: got --hosts and --hosts-file, want one");
  }
  if (options_.hosts_file.empty()) return ParseHostList("--hosts", options_.hosts);
  std::ifstream file(options_.hosts_file);
  if (!file) {
    return absl::InvalidArgumentError(
        absl::StrCat("--hosts-file: \"", options_.hosts_file, "\" cannot be read"));
  }
  const std::string text = {std::istreambuf_iterator<char>(file), {}};
  return ParseHostsFile(options_.hosts_file, text);
}

// Reads all that is here, so that a wrong flag is told before any host is called.
absl::Status JobLaunch::Prepare() {
  TESSERA_ASSIGN_OR_RETURN(hosts_, ReadHosts());
  for (LaunchHost& host : hosts_) {
    if (host.directory.empty()) host.directory = options_.directory;
  }
  // The bundle is opened here, too, where all hosts turn out to have it: its sum is what they are asked for.
  TESSERA_ASSIGN_OR_RETURN(bundle_, LaunchBundle::Open(options_.bundle));
  if (options_.copies_data) {
    TESSERA_ASSIGN_OR_RETURN(data_, DataCopy::Of(job_));
  }
  TESSERA_ASSIGN_OR_RETURN(recipe_, RecipeFor(job_));
  TESSERA_ASSIGN_OR_RETURN(ssh_, Ssh::Find(options_.ssh));
  TESSERA_ASSIGN_OR_RETURN(folders_, RunFolders::Open(""));
  calls_ = std::make_unique<HostCalls>(folders_->PrivatePath(""), !options_.run.quiet);
  // Launches of one second have folders of their own on hosts that share one.
  std::random_device random;
  id_ = absl::StrFormat(
      "%s-%08x", absl::FormatTime("%Y%m%d-%H%M%S", absl::Now(), absl::UTCTimeZone()), random());
  return absl::OkStatus();
}

// What is copied flows through a pipe, and takes no room here.
HostCall JobLaunch::CallOf(size_t host, absl::string_view script, const std::string& input) const {
  HostCall call;
  call.host = hosts_[host].name;
  call.program = ssh_->program();
  call.arguments = ssh_->Arguments(hosts_[host], script);
  if (!input.empty()) {
    const std::string ssh = absl::StrCat(ShellWord(call.program), " ", ShellWords(call.arguments));
    call.program = "/bin/sh";
    call.arguments = {"-c", absl::StrCat("{ ", input, "; } | ", ssh)};
  }
  return call;
}

// A host is called as ssh calls it, whose configuration may give a name another address.
absl::Status JobLaunch::FindAddresses() {
  std::vector<HostCall> calls;
  for (const LaunchHost& host : hosts_) {
    calls.push_back({host.name, ssh_->program(), ssh_->ConfigArguments(host)});
  }
  TESSERA_ASSIGN_OR_RETURN(const std::vector<HostAnswer> answers,
                           Call("ssh's configuration", calls, kProbeMax));
  Faults faults;
  for (size_t i = 0; i < size(); ++i) {
    if (!answers[i].ok()) faults.emplace_back(hosts_[i].name, "ssh -G: " + answers[i].Why());
    for (absl::string_view line : absl::StrSplit(answers[i].text, '\n')) {
      if (hosts_[i].address.empty() && absl::ConsumePrefix(&line, "hostname ")) {
        hosts_[i].address = std::string(line);
      }
    }
    if (hosts_[i].address.empty()) hosts_[i].address = hosts_[i].name;
  }
  return Refuse(faults);
}

// An error that lists the faults, if there are any, with the number of hosts that have some.
absl::Status JobLaunch::Refuse(const Faults& faults) const {
  if (faults.empty()) return absl::OkStatus();
  std::set<std::string> names;
  std::string text;
  for (const auto& [host, what] : faults) {
    names.insert(host);
    absl::StrAppend(&text, "\n  ", host, ": ", what);
  }
  return absl::FailedPreconditionError(absl::StrCat(names.size(), " of ",
                                                    Counted(static_cast<int64_t>(size()), "host"),
                                                    " cannot take part:", text));
}

// Where the connection failed ssh's own words say what was done: `what` is left out.
JobLaunch::Faults JobLaunch::FaultOf(const HostAnswer& answer, absl::string_view what) {
  if (answer.ok()) return {};
  const std::string why = answer.Why();
  const std::string advice = SshAdvice(why);
  // Scripts end with the code of their commands, of which none has this one.
  const bool is_ssh = answer.in_time && answer.code == kConnectionLost;
  return {{answer.host, absl::StrCat(is_ssh ? "" : absl::StrCat(what, ": "), why,
                                     is_ssh && !advice.empty() ? "\n    -> " + advice : "")}};
}

absl::Status JobLaunch::CallAll(absl::string_view what, const std::vector<HostCall>& calls,
                                absl::Duration limit) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<HostAnswer> answers, Call(what, calls, limit));
  Faults faults;
  for (const HostAnswer& answer : answers) {
    for (auto& fault : FaultOf(answer, what)) faults.push_back(std::move(fault));
  }
  return Refuse(faults);
}

// Asks each host for its facts, and judges them together.
absl::Status JobLaunch::Probe() {
  std::vector<HostCall> calls;
  for (size_t i = 0; i < size(); ++i) {
    calls.push_back(CallOf(i, ProbeScript(hosts_[i].directory, bundle_->digest(),
                                          data_.has_value() ? data_->digest() : "")));
  }
  const absl::Time asked = absl::Now();
  TESSERA_ASSIGN_OR_RETURN(const std::vector<HostAnswer> answers,
                           Call("its answer", calls, kProbeMax));
  const absl::Time answered = absl::Now();
  const int64_t bytes = BytesOf(bundle_->folder());
  Faults faults;
  for (size_t i = 0; i < size(); ++i) {
    facts_.push_back(ReadProbe(answers[i].text));
    // The script ends with another code where its last command has failed, and has told its facts all the same.
    const bool is_heard = answers[i].in_time && answers[i].code != kConnectionLost;
    if (!is_heard) {
      for (auto& fault : FaultOf(answers[i], "the probe")) faults.push_back(std::move(fault));
      continue;
    }
    for (std::string& fault : FaultsOf(facts_[i], OwnMachine(), bytes)) {
      faults.emplace_back(hosts_[i].name, std::move(fault));
    }
    const std::string note = ClockNote(facts_[i], asked, answered);
    if (!note.empty() && !options_.run.quiet) {
      std::fprintf(stderr, "tessera: note: %s: %s\n", hosts_[i].name.c_str(), note.c_str());
    }
    hosts_[i].directory = facts_[i].directory;
  }
  return Refuse(faults);
}

// Copies to those that lack the bundle, all at once: the slowest link says how long it takes.
absl::Status JobLaunch::CopyBundle() {
  std::vector<HostCall> calls;
  for (size_t i = 0; i < size(); ++i) {
    if (facts_[i].has_bundle) continue;
    calls.push_back(CallOf(i, bundle_->UnpackScript(hosts_[i].directory), bundle_->PackCommand()));
  }
  return CallAll("the copy of the bundle", calls, kCopyMax);
}

// From here on the job has its servers' addresses, here and on the hosts.
absl::Status JobLaunch::PlaceProcesses() {
  std::vector<std::set<int>> taken;
  std::vector<std::string> notes;
  for (const HostFacts& facts : facts_) {
    taken.push_back(facts.taken);
    notes.emplace_back(facts.has_bundle ? "there" : "copied");
  }
  TESSERA_ASSIGN_OR_RETURN(placement_, PlaceJob(job_, *recipe_, hosts_, taken, options_.port));
  ListServers(placement_, &job_);
  if (!options_.run.quiet) {
    std::fputs(PlacementTable(hosts_, placement_, notes).c_str(), stdout);
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

// A host is one that may have files of the job as soon as they are on their way, whether they come or not.
absl::Status JobLaunch::CopyJob() {
  const std::string folder = folders_->PrivatePath("job");
  TESSERA_RETURN_IF_ERROR(WriteJobFiles(folder, job_, data_.has_value() ? &*data_ : nullptr));
  std::vector<HostCall> calls;
  for (size_t i = 0; i < size(); ++i) {
    const std::string there = absl::StrCat(hosts_[i].directory, "/jobs/", id_);
    ready_.push_back({hosts_[i], bundle_->FolderIn(hosts_[i].directory), there});
    calls.push_back(CallOf(i, UnpackJobScript(there), PackJobCommand(folder)));
  }
  return CallAll("the copy of the job", calls, kProbeMax);
}

// Hosts with servers alone read no data.
absl::Status JobLaunch::CopyData() {
  if (!data_.has_value()) return absl::OkStatus();
  std::vector<HostCall> calls;
  for (size_t i = 0; i < size(); ++i) {
    if (facts_[i].has_data || !placement_.HasWorkers(i)) continue;
    calls.push_back(CallOf(i, data_->UnpackScript(hosts_[i].directory), data_->PackCommand()));
  }
  return CallAll("the copy of the data", calls, kCopyMax);
}

// Has each host look at the job as it is there, its paths and ports included.
absl::Status JobLaunch::Examine() {
  std::vector<HostCall> calls;
  for (size_t i = 0; i < size(); ++i) {
    std::vector<std::string> words = {ready_[i].bundle + "/tessera", "doctor",
                                      absl::StrCat(ready_[i].folder, "/job/", kLaunchedJob),
                                      "--json"};
    if (!placement_.HasWorkers(i)) words.emplace_back("--no-data");
    calls.push_back(CallOf(i, "exec " + ShellWords(words)));
  }
  TESSERA_ASSIGN_OR_RETURN(const std::vector<HostAnswer> answers,
                           Call("tessera doctor", calls, kDoctorMax));
  Faults faults;
  for (const HostAnswer& answer : answers) {
    if (answer.ok()) continue;
    // One that has found no problem and failed is itself the fault.
    const std::vector<std::string> problems = ProblemsOf(answer.text);
    for (const std::string& problem : problems) faults.emplace_back(answer.host, problem);
    if (!problems.empty()) continue;
    for (auto& fault : FaultOf(answer, "tessera doctor")) faults.push_back(std::move(fault));
  }
  return Refuse(faults);
}

// Follows the job as `tessera run` does; the place says where its children are.
absl::Status JobLaunch::Train() {
  const RemotePlace place(*ssh_, ready_, placement_, grace_);
  RunOptions run = options_.run;
  run.place = &place;
  run.command = "tessera launch";
  return TrainJob(run, job_, signals_);
}

// Ends what the job has left on its hosts. No signal keeps it from that, as it is what one asks for.
void JobLaunch::EndAll() {
  std::vector<HostCall> calls;
  for (size_t i = 0; i < ready_.size(); ++i) {
    calls.push_back(
        CallOf(i, absl::StrCat("exec ", ShellWords({ready_[i].bundle + "/tessera", "attach",
                                                    "--folder", ready_[i].folder}))));
  }
  const absl::StatusOr<std::vector<HostAnswer>> answers =
      calls_ == nullptr ? std::vector<HostAnswer>()
                        : calls_->Call("the end of its processes", calls, kEndMax, nullptr);
  if (!answers.ok()) return;
  for (const HostAnswer& answer : *answers) {
    if (answer.ok()) continue;
    std::fprintf(
        stderr,
        "tessera: %s: the job's end there is not known: %s; what runs there ends by itself "
        "within %s (--grace)\n",
        answer.host.c_str(), answer.Why().c_str(), absl::FormatDuration(grace_).c_str());
  }
}

// The first step that fails is the last, but for the end.
absl::Status JobLaunch::Run() {
  using Step = absl::Status (JobLaunch::*)();
  absl::Status status;
  for (const Step step : {&JobLaunch::Prepare, &JobLaunch::FindAddresses, &JobLaunch::Probe,
                          &JobLaunch::CopyBundle, &JobLaunch::PlaceProcesses, &JobLaunch::CopyJob,
                          &JobLaunch::CopyData, &JobLaunch::Examine}) {
    status = (this->*step)();
    if (!status.ok()) break;
  }
  if (status.ok() && options_.only_checks) {
    if (!options_.run.quiet) std::printf("all hosts can take part; nothing is started\n");
  } else if (status.ok()) {
    status = Train();
  }
  EndAll();
  return status;
}

}  // namespace

int LaunchJob(LaunchOptions options) {
  RunSignals signals;
  std::atomic<bool> has_begun{false};
  const Termination termination([&](int count, int signal) {
    // There is nothing to end, and who reads the job may wait for a pipe or a disk.
    if (!has_begun) EndBySignal(signal);
    signals.last = signal;
    signals.count = count;
  });
  FlagReader reader("tessera launch");
  const absl::Duration grace =
      absl::Nanoseconds(reader.Duration("grace", options.grace, ", 1s or more"));
  reader.Between("port", options.port, 1, 65535);
  Machines machines = OneMachine();
  machines.bandwidth = static_cast<double>(reader.Bandwidth("bandwidth", options.bandwidth));
  if (!reader.errors().empty()) {
    std::fprintf(stderr, "%s", reader.errors().c_str());
    return 2;
  }
  // The data need not be here.
  JobReading reading;
  // What is chosen goes to the hosts as what was set on the command line does.
  const int refused = ReadJobToStart(machines, {/*check_files=*/false}, &options.run, &reading);
  if (refused != 0) return refused;
  has_begun = true;
  JobLaunch launch(options, reading.job, std::max(grace, absl::Seconds(1)), signals);
  const absl::Status status = launch.Run();
  if (!status.ok()) {
    for (const absl::string_view line : absl::StrSplit(status.message(), '\n')) {
      const bool is_below = absl::string_view(line).substr(0, 1) == " ";
      std::fprintf(stderr, "%s%s\n", is_below ? "" : "tessera: ", std::string(line).c_str());
    }
  }
  return ExitCodeOf(status, signals);
}

}  // namespace tessera
