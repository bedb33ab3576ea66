// A job as a batch script of Slurm: one step, `srun`, for each of its processes.
//
// Slurm chooses the nodes, and the script tells the processes where these are. Steps are apart, so that a node that is
// lost takes its own processes along and no others: `--no-kill` has the rest go on as the job does after a loss.
#ifndef TESSERA_DEPLOY_CLI_LAUNCH_SLURM_SCRIPT_H_
#define TESSERA_DEPLOY_CLI_LAUNCH_SLURM_SCRIPT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/method/recipe.h"
#include "proto/job.pb.h"

namespace tessera {

struct SlurmOptions {
  // The folder of the programs, which all nodes see.
  std::string programs;
  // The job file, which all nodes see, and what is set on top of it; all paths are absolute.
  std::string job_path;
  std::vector<std::string> overrides;
  // Where a folder of logs is made for each Slurm job.
  std::string log_directory;
  // Empty: beside the logs.
  std::string report_path;
  // How many nodes; 0: one for each worker.
  int nodes = 0;
  // The least port of servers.
  int port = 7000;
  // Options of sbatch: "--partition=gpu".
  std::vector<std::string> sbatch;
};

// The script.
//   kInvalidArgument  the job lists its servers' addresses
absl::StatusOr<std::string> SlurmScript(const v1::Job& job, const Recipe& recipe,
                                        const SlurmOptions& options);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_LAUNCH_SLURM_SCRIPT_H_
