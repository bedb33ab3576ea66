// `tessera simulate JOB.yaml`: how a job would train on machines that are not here.
#ifndef TESSERA_DEPLOY_CLI_SIMULATE_COMMAND_H_
#define TESSERA_DEPLOY_CLI_SIMULATE_COMMAND_H_

#include <optional>
#include <string>
#include <vector>

namespace tessera {

// The flags as text, the way they were given.
//
// It has more fields than other classes, as each flag is one.
struct SimulateOptions {
  std::string job_path;
  // "a.b=v", as given by --set.
  std::vector<std::string> overrides;
  // Absent: as the job says.
  std::optional<int> workers;
  std::optional<int> servers;
  int machines = 0;
  std::vector<int> server_machines;
  int cores_per_machine = 0;
  // "1Gbit", "100MB"; "0": no limit.
  std::string bandwidth = "0";
  std::string loopback_bandwidth = "1GB";
  std::string message_cost = "60us";
  std::string server_rate = "4GB";
  // "20ms"; a step time may also be "measured".
  std::string latency = "0";
  std::string step_time = "measured";
  double speed_spread = 0;
  double slow_worker = 1;
  double step_jitter = 0;
  double fail_rate = 0;
  // "never", or a duration.
  std::string restart_after = "never";
  bool stub_gradients = false;
  // The file that the report is written to; empty: none.
  std::string report_path;
  bool quiet = false;
};

// Simulates the job to its end and returns the process's exit code:
//   0  the simulated job ended normally
//   1  it did not, or the simulation could not be carried out; stderr says why
//   2  the job file or a flag is wrong; stderr lists everything that is
// The first Ctrl-C or SIGTERM makes the simulated job evaluate and end; the second ends at once.
int SimulateJob(const SimulateOptions& options);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_SIMULATE_COMMAND_H_
