// `tessera launch --slurm JOB.yaml`: the job as a batch script, submitted or printed.
#ifndef TESSERA_DEPLOY_CLI_LAUNCH_SLURM_COMMAND_H_
#define TESSERA_DEPLOY_CLI_LAUNCH_SLURM_COMMAND_H_

#include <string>
#include <vector>

#include "deploy/cli/run/run_command.h"

namespace tessera {

struct SlurmLaunchOptions {
  // Of these the job, what is set on top of it, the report and the folder of logs count.
  RunOptions run;
  // The folder of the programs; empty: this program's.
  std::string bundle;
  int nodes = 0;
  int port = 7000;
  // As LaunchOptions has it.
  std::string bandwidth = "10Gbit";
  std::vector<std::string> sbatch;
  // Whether the script is printed, and not submitted.
  bool only_prints = false;
};

// Returns 0 once the script is printed, or Slurm has taken it; 2 where the job or a flag is wrong; else 1.
int SubmitToSlurm(SlurmLaunchOptions options);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_LAUNCH_SLURM_COMMAND_H_
