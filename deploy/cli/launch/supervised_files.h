// The files by which the processes of one launched job are held on one of its machines, all in one folder:
//
//   lease            its time changes as long as the launching machine is there
//   end              made by whoever wants all processes to end at once
//   NAME.log         what the process prints
//   NAME.supervisor  locked as long as the process has its supervisor, whose number it holds
//   NAME.exit        "CODE SIGNAL WHY", once the process has ended
//
// NAME is "server-0", "worker-3".
#ifndef TESSERA_DEPLOY_CLI_LAUNCH_SUPERVISED_FILES_H_
#define TESSERA_DEPLOY_CLI_LAUNCH_SUPERVISED_FILES_H_

#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "deploy/cli/run/child_process.h"

namespace tessera {

constexpr char kSupervisorSuffix[] = ".supervisor";

// The paths of one process's files. Any thread.
class SupervisedFiles {
 public:
  SupervisedFiles(std::string folder, std::string name)
      : folder_(std::move(folder)), name_(std::move(name)) {}

  const std::string& folder() const { return folder_; }
  const std::string& name() const { return name_; }
  std::string lease() const { return folder_ + "/lease"; }
  std::string end() const { return folder_ + "/end"; }
  // The job and its secrets, which nobody needs once the process has begun and ended.
  std::string job() const { return folder_ + "/job"; }
  std::string log() const { return folder_ + "/" + name_ + ".log"; }
  std::string supervisor() const { return folder_ + "/" + name_ + kSupervisorSuffix; }
  std::string exit() const { return folder_ + "/" + name_ + ".exit"; }

  // Makes the exit file at once whole. kUnavailable: it cannot be written.
  absl::Status WriteExit(const ChildProcess::Exit& exit) const;
  // nullopt: the process has not ended.
  std::optional<ChildProcess::Exit> ReadExit() const;

 private:
  const std::string folder_;
  const std::string name_;
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_LAUNCH_SUPERVISED_FILES_H_
