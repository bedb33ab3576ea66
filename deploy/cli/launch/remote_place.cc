#include "deploy/cli/launch/remote_place.h"

#include <filesystem>
#include <memory>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "deploy/cli/launch/job_files.h"

namespace tessera {

absl::Status RemotePlace::PrepareLogs(const RunFolders& folders) const {
  for (const ReadyHost& ready : hosts_) {
    const std::string logs = absl::StrCat(folders.logs(), "/", ready.host.name);
    std::error_code error;
    std::filesystem::create_directories(logs, error);
    if (error) {
      return absl::InvalidArgumentError(absl::StrCat("--logs: \"", logs, "\": ", error.message()));
    }
    TESSERA_RETURN_IF_ERROR(RemoveOldLogs(logs));
  }
  return absl::OkStatus();
}

// Processes run in the folder that has it, wherever that is on their host.
std::string RemotePlace::job_path() const { return kLaunchedJob; }

void RemotePlace::Place(absl::string_view kind, size_t rank, const RunFolders& folders,
                        ChildProcess::Options* child) const {
  const PlacedProcess& placed =
      kind == "server" ? placement_.servers[rank] : placement_.workers[rank];
  const ReadyHost& ready = hosts_[placed.host];
  const std::string name = absl::StrCat(kind, "-", rank);
  // A worker that is a shell's command of the user's gets its environment by `env`, as ssh passes none on.
  std::vector<std::string> command;
  if (child->environment.empty()) {
    command.push_back(absl::StrCat(ready.bundle, "/tessera-", kind));
  } else {
    command.emplace_back("/usr/bin/env");
    command.insert(command.end(), child->environment.begin(), child->environment.end());
    command.push_back(child->program);
  }
  command.insert(command.end(), child->arguments.begin(), child->arguments.end());
  // Only a worker that others call is told where it listens; a server reads that in the job.
  if (kind == "worker" && !placed.address.empty() && child->environment.empty()) {
    command.insert(command.end(), {"--listen", placed.address});
  }
  const std::vector<std::string> attach = {ready.bundle + "/tessera",
                                           "attach",
                                           "--folder",
                                           ready.folder,
                                           "--name",
                                           name,
                                           "--grace",
                                           absl::StrCat(absl::ToInt64Seconds(grace_))};
  const auto connection = std::make_shared<SshConnection>(
      ssh_, ready.host, attach, command, grace_, folders.PrivatePath(absl::StrCat(name, ".ssh")));
  const std::string logs = absl::StrCat(folders.logs(), "/", ready.host.name);
  child->name = absl::StrCat(child->name, " on ", ready.host.name);
  child->program = ssh_.program();
  child->arguments = connection->ArgumentsFrom(0);
  child->environment.clear();
  child->log_path = absl::StrCat(logs, "/", name, ".log");
  // Memory that was short was short there: the supervisor says so in the log.
  child->why_killed = nullptr;
  child->connection = connection;
}

}  // namespace tessera
