// `tessera plan JOB.yaml`: what each method would move and take on machines that are not here, without training.
#ifndef TESSERA_DEPLOY_CLI_PLAN_PLAN_COMMAND_H_
#define TESSERA_DEPLOY_CLI_PLAN_PLAN_COMMAND_H_

#include <optional>
#include <string>
#include <vector>

namespace tessera {

// The flags as text, the way they were given.
struct PlanOptions {
  std::string job_path;
  std::vector<std::string> overrides;
  int nodes = 0;
  std::optional<int> servers;
  std::optional<int> local_steps;
  // A share of the time; absent: nobody asks for the local steps that reach it.
  std::optional<double> utilisation;
  std::string bandwidth;
  std::string latency = "0";
  // A duration, or "measured".
  std::string step_time = "measured";
  std::string server_rate = "4GB";
  std::string loopback_bandwidth = "1GB";
  bool json = false;
};

// Prints the prediction and returns the process's exit code:
//   0  it was made
//   1  a step could not be measured, or the data for it not be read; stderr says why
//   2  the job file or a flag is wrong; stderr lists everything that is
int PlanJob(const PlanOptions& options);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_PLAN_PLAN_COMMAND_H_
