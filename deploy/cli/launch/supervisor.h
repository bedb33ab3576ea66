// A process of a launched job on its machine, and the small process above it, which outlives the connection that has
// started it.
//
// The supervisor leads a session of its own, so that the end of a connection is no signal to it. It ends its process
//   - when SIGTERM asks for it: with SIGTERM, once
//   - when the file "end" is there: at once
//   - when the lease has stood still for the grace: with SIGTERM, and after kSupervisedEndMax at once
// A process whose supervisor is killed is killed by the kernel. Once the process has ended the supervisor stays for the
// job's files: it goes when somebody ends the job, or the lease has stood still, and then takes the secrets along.
#ifndef TESSERA_DEPLOY_CLI_LAUNCH_SUPERVISOR_H_
#define TESSERA_DEPLOY_CLI_LAUNCH_SUPERVISOR_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "deploy/cli/launch/supervised_files.h"

namespace tessera {

// How long a process may take to end that has been asked to.
constexpr absl::Duration kSupervisedEndMax = absl::Seconds(10);

struct SupervisedProcess {
  std::string program;
  std::vector<std::string> arguments;
  // How long it goes on while the lease stands still.
  absl::Duration grace;
};

// Starts a supervisor and its process, unless they were started before: the same call made again starts nothing.
// Returns true where it has started them. To be called before this process has threads.
//   kUnavailable  the folder's files cannot be written, or there can be no other process
absl::StatusOr<bool> StartSupervisor(const SupervisedFiles& files,
                                     const SupervisedProcess& process);

// Whether a supervisor holds the process. Its number, where it does; else 0.
int RunningSupervisor(const SupervisedFiles& files);

// Ends all processes of the folder and removes it. Returns the names of those that are there after `patience`, for
// which the folder stays.
std::vector<std::string> EndSupervised(const std::string& folder, absl::Duration patience);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_LAUNCH_SUPERVISOR_H_
