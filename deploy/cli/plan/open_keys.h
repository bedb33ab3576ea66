// Chooses what a job leaves open, before it is started: keys that say `auto` (Recipe::open_keys).
#ifndef TESSERA_DEPLOY_CLI_PLAN_OPEN_KEYS_H_
#define TESSERA_DEPLOY_CLI_PLAN_OPEN_KEYS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/config/job_reader.h"
#include "deploy/cli/plan/exchange_time.h"

namespace tessera {

// The machines that a plan supposes where nobody says more; all workers are on one of them. Their number is the job's.
Machines OneMachine();

// If the job leaves keys open, times a step here and takes the way to deal its layers that would train most rows a
// second on `machines`, of those whose halves fit cluster.memory_limit; and reads the job anew with it. `overrides` get
// what was chosen, for all processes of the job, and the result says it in a line. Nothing changes, and the line is
// empty, where nothing is open.
//   kInvalidArgument     no way fits, with the key and what is wanted
//   kFailedPrecondition  no step can be timed here, as the data are elsewhere: the line says what to do
absl::StatusOr<std::string> CloseOpenKeys(Machines machines, const std::string& job_path,
                                          const JobOptions& options,
                                          std::vector<std::string>* overrides, JobReading* reading);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_PLAN_OPEN_KEYS_H_
