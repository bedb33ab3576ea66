// `tessera init DATA...`: a commented job file for a data set that it looks at.
#ifndef TESSERA_DEPLOY_CLI_INIT_INIT_COMMAND_H_
#define TESSERA_DEPLOY_CLI_INIT_INIT_COMMAND_H_

#include <string>
#include <vector>

namespace tessera {

struct InitOptions {
  // A folder with the data, or its files.
  std::vector<std::string> paths;
  // The job file to write.
  std::string out_path = "job.yaml";
  // A file that is there is replaced.
  bool force = false;
};

// Writes the job file, once the job has been read and its data loaded as a worker would. Returns the process's exit
// code; stderr says why it is not 0:
//   0  it was written
//   1  it cannot be written
//   2  the data cannot be used, or there is a file already
int InitJob(const InitOptions& options);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_INIT_INIT_COMMAND_H_
