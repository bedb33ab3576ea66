// `tessera doctor JOB`: is everything there that the job needs, seen from this machine?
#ifndef TESSERA_DEPLOY_CLI_DOCTOR_COMMAND_H_
#define TESSERA_DEPLOY_CLI_DOCTOR_COMMAND_H_

#include <string>
#include <vector>

namespace tessera {

struct DoctorOptions {
  std::string job_path;
  std::vector<std::string> overrides;
  // The machine has only servers, and no data.
  bool no_data = false;
  // One JSON object at the end in place of lines as they come.
  bool json = false;
};

// Prints each finding with what to do, as soon as it is made. Returns 0 where there is no problem, 1 where there is
// one, 2 for a bad job.
int ExamineJob(const DoctorOptions& options);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_DOCTOR_COMMAND_H_
