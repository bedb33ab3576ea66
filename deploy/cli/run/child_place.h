// Where a job's processes run, if that is not this machine.
#ifndef TESSERA_DEPLOY_CLI_RUN_CHILD_PLACE_H_
#define TESSERA_DEPLOY_CLI_RUN_CHILD_PLACE_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "deploy/cli/run/child_process.h"
#include "deploy/cli/run/run_folders.h"

namespace tessera {

// Constant while processes are started. One thread.
class ChildPlace {
 public:
  virtual ~ChildPlace() = default;

  // Readies the folder of logs, of which an earlier run's are removed.
  //   kInvalidArgument  it cannot be written
  virtual absl::Status PrepareLogs(const RunFolders& folders) const = 0;
  // Makes of `child`, the process of `kind` ("server", "worker") as it would be started here, the one that starts it
  // where it belongs. `folders` are those of the run: its log may go to a folder of its machine in them.
  virtual void Place(absl::string_view kind, size_t rank, const RunFolders& folders,
                     ChildProcess::Options* child) const = 0;
  // The job file there.
  virtual std::string job_path() const = 0;
  // Where the first server is called, and the name of its machine.
  virtual std::string coordinator() const = 0;
  virtual std::string coordinator_host() const = 0;
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_RUN_CHILD_PLACE_H_
