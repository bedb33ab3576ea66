#include "deploy/cli/run/job_children.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/compute_environment.h"
#include "common/base/steady_clock.h"
#include "common/method/recipe.h"
#include "deploy/cli/report_status.h"
#include "deploy/cli/run/find_program.h"
#include "server/control/lost_parameters.h"

namespace tessera {

absl::StatusOr<std::unique_ptr<JobChildren>> JobChildren::Create(
    const v1::Job& job, const RunFolders* folders, std::function<void(const std::string&)> tell) {
  auto children = absl::WrapUnique(new JobChildren(job, folders));
  children->tell_ = std::move(tell);
  TESSERA_ASSIGN_OR_RETURN(children->server_program_, FindProgram("tessera-server", "server"));
  TESSERA_ASSIGN_OR_RETURN(children->worker_program_, FindProgram("tessera-worker", "worker"));
  TESSERA_ASSIGN_OR_RETURN(const Recipe recipe, RecipeFor(job));
  children->servers_may_go_ =
      recipe.placement == Placement::kReplicated || job.cluster().replicas() > 0;
  return children;
}

JobChildren::~JobChildren() {
  workers_.clear();
  servers_.clear();
}

void JobChildren::SetJob(std::string path, std::vector<std::string> overrides) {
  job_path_ = std::move(path);
  overrides_ = std::move(overrides);
}

std::string JobChildren::AddressPath() const { return folders_.PrivatePath("server-0.address"); }

std::string JobChildren::ReportPath() const { return folders_.PrivatePath("report.json"); }

std::vector<std::string> JobChildren::CommonArguments(size_t rank) const {
  std::vector<std::string> arguments = {"--job", job_path_};
  for (const std::string& override : overrides_) {
    arguments.insert(arguments.end(), {"--set", override});
  }
  // All of them end with one: there is nobody to elect.
  if (job_.cluster().coordinator().etcd_size() > 0) {
    arguments.insert(arguments.end(), {"--set", "cluster.coordinator.etcd=[]"});
  }
  if (!coordinator_.empty()) arguments.insert(arguments.end(), {"--coordinator", coordinator_});
  arguments.insert(arguments.end(), {"--rank", absl::StrCat(rank)});
  return arguments;
}

// "server 1" logs to server-1.log.
ChildProcess::Options JobChildren::Options(std::string name, const std::string& program,
                                           size_t rank) {
  ChildProcess::Options child;
  child.log_path = LogPath(absl::StrCat(name, "-", rank));
  child.name = absl::StrCat(name, " ", rank);
  child.program = program;
  child.arguments = CommonArguments(rank);
  child.why_killed = [this] { return memory_kills_.Explain(); };
  return child;
}

// Starts it here, or where it belongs.
absl::StatusOr<ChildProcess> JobChildren::Start(absl::string_view kind, size_t rank,
                                                ChildProcess::Options child) const {
  if (place_ != nullptr) {
    place_->Place(kind, rank, folders_, &child);
    child.tell = tell_;
  }
  return ChildProcess::Start(std::move(child));
}

absl::Status JobChildren::StartServer() {
  const size_t rank = servers_.size();
  ChildProcess::Options child = Options("server", server_program_, rank);
  // Without addresses in the job, servers take free ports here and tell each other through the
  // coordinator.
  if (job_.cluster().servers().addresses().empty() && place_ == nullptr) {
    child.arguments.insert(child.arguments.end(), {"--listen", "127.0.0.1:0"});
  }
  // Nobody here would start it again.
  child.arguments.push_back("--no-takeover");
  if (rank == 0 && place_ == nullptr) {
    child.arguments.insert(child.arguments.end(),
                           {"--address-file", AddressPath(), "--report", ReportPath()});
  }
  if (rank == 0) {
    child.arguments.insert(child.arguments.end(), first_server_flags_.begin(),
                           first_server_flags_.end());
  }
  TESSERA_ASSIGN_OR_RETURN(ChildProcess started, Start("server", rank, std::move(child)));
  servers_.push_back(std::move(started));
  server_noticed_.push_back(false);
  return absl::OkStatus();
}

absl::Status JobChildren::StartWorker() {
  const size_t rank = workers_.size();
  ChildProcess::Options child = Options("worker", worker_program_, rank);
  if (!worker_command_.empty()) {
    child.program = "/bin/sh";
    child.arguments = {"-c", worker_command_};
    child.environment = {absl::StrCat("TESSERA_JOB=", job_path_),
                         absl::StrCat("TESSERA_RANK=", rank),
                         absl::StrCat("TESSERA_COORDINATOR=", coordinator_)};
  } else if (place_ == nullptr) {
    child.environment = AddedComputeVariables();
  }
  TESSERA_ASSIGN_OR_RETURN(ChildProcess started, Start("worker", rank, std::move(child)));
  workers_.push_back(std::move(started));
  ended_.emplace_back();
  return absl::OkStatus();
}

void JobChildren::ForgiveFirstServer() {
  if (const auto exit = servers_[0].Poll()) server_noticed_[0] = exit->signal == 0;
}

std::string JobChildren::LostWith(const ChildProcess::Exit& server) const {
  // One that says itself why it ends says what is to be seen to, and where servers may go nothing is lost with one.
  if (server.signal == 0 || servers_may_go_) return "";
  return absl::StrCat("; its parameters are lost; ",
                      LostParametersAdvice({!job_.checkpoint().directory().empty(), false,
                                            static_cast<int>(job_.cluster().servers().count())}));
}

absl::Status JobChildren::CheckServers(const std::optional<v1::JobStatus>& status) {
  const bool begun = status.has_value() && status->generation() > 0;
  for (size_t i = 0; i < servers_.size(); ++i) {
    const std::optional<ChildProcess::Exit> exit = servers_[i].Poll();
    if (!exit.has_value() || exit->ok() || server_noticed_[i]) continue;
    if (!servers_may_go_ || i == 0 || !begun) {
      const bool is_news = begun && !HasReport(status);
      return ChildError(servers_[i], *exit, is_news ? LostWith(*exit) : "");
    }
    server_noticed_[i] = true;
    tell_(std::string(ChildError(servers_[i], *exit, "; the others go on").message()));
  }
  return absl::OkStatus();
}

absl::Status JobChildren::CheckWorkers(const std::optional<v1::JobStatus>& status) {
  if (workers_.empty()) return absl::OkStatus();  // Those that take part were started elsewhere.
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
    if (ended.is_told) {
      tell_(absl::StrCat("the others go on without ", workers_[i].name()));
    } else {
      const absl::Status why =
          ChildError(workers_[i], *exit, ended.is_over ? "; the others go on" : "");
      tell_(std::string(why.message()));
    }
    ended.is_told = true;
  }
  if (!all_ended) return absl::OkStatus();
  if (workers_ended_ == absl::InfiniteFuture()) workers_ended_ = SteadyNow();
  if (begun) TESSERA_RETURN_IF_ERROR(CheckDeadWorkers(*status));
  // The servers notice by themselves; but not one that hangs.
  const absl::Duration limit = lease + kChildEndMax;
  if (SteadyNow() - workers_ended_ < limit) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("all workers have ended, but the servers have not within ",
                                         absl::FormatDuration(limit), "; server 0's last lines:\n",
                                         servers_[0].LogTail(8)));
}

absl::Status JobChildren::CheckDeadWorkers(const v1::JobStatus& status) {
  // The coordinator may be about to say how the job ended.
  if (SteadyNow() - workers_ended_ <= kLastWordsMax) return absl::OkStatus();
  if (!status.failure().empty() || HasReport(status)) return absl::OkStatus();
  size_t live = 0;
  for (const v1::MemberStatus& member : status.members()) {
    live += member.state() != "left" && member.state() != "lost";
  }
  if (live > workers_.size()) return absl::OkStatus();  // Others have come from elsewhere.
  std::vector<std::string> ends;
  for (ChildProcess& worker : workers_) {
    const std::optional<ChildProcess::Exit> exit = worker.Poll();
    // What one of them has finished stands, once the others are given up.
    if (!exit.has_value() || exit->ok()) return absl::OkStatus();
    ends.push_back(absl::StrCat(worker.name(), " ended with ", exit->ToString()));
  }
  return absl::AbortedError(absl::StrCat("all workers are gone: ", absl::StrJoin(ends, ", "),
                                         kLastLines, workers_[0].LogTail(8)));
}

void JobChildren::TellDeaths(absl::string_view known) {
  const auto tell = [&](ChildProcess& child, bool is_told) {
    const std::optional<ChildProcess::Exit> exit = child.Poll();
    if (is_told || !exit.has_value() || exit->signal == 0) return;
    if (absl::StrContains(known, absl::StrCat(child.name(), " ended with signal"))) return;
    tell_(std::string(ChildError(child, *exit, "").message()));
  };
  for (size_t i = 0; i < servers_.size(); ++i) tell(servers_[i], server_noticed_[i]);
  for (size_t i = 0; i < workers_.size(); ++i) tell(workers_[i], ended_[i].is_told);
}

bool JobChildren::OthersGoOn(size_t rank, const v1::JobStatus& status) {
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

bool JobChildren::HaveEnded(bool but_first_server) {
  bool all = true;
  for (ChildProcess& child : workers_) all = child.Poll().has_value() && all;
  for (ChildProcess& child : servers_) {
    const bool is_passed_over = but_first_server && &child == &servers_[0];
    all = (child.Poll().has_value() || is_passed_over) && all;
  }
  return all;
}

std::string JobChildren::NamesOfRunning() {
  return tessera::NamesOfRunning({&servers_, &workers_});
}

void JobChildren::Kill() {
  for (ChildProcess& child : workers_) child.Kill();
  for (ChildProcess& child : servers_) child.Kill();
}

}  // namespace tessera
