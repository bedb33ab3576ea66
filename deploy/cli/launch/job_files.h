// The files that a launched job's machines get: the job as they read it, its certificates and its tokens.
#ifndef TESSERA_DEPLOY_CLI_LAUNCH_JOB_FILES_H_
#define TESSERA_DEPLOY_CLI_LAUNCH_JOB_FILES_H_

#include <string>

#include "absl/status/status.h"
#include "deploy/cli/launch/data_copy.h"
#include "deploy/cli/launch/placement.h"
#include "proto/job.pb.h"

namespace tessera {

// The job's file in their folder.
constexpr char kLaunchedJob[] = "job.yaml";

// Lists the servers of `placement` in the job, in the place of their number.
void ListServers(const JobPlacement& placement, v1::Job* job);

// Makes `folder`, which nobody else may read, and writes the files to it: `job` with paths that start at its file where
// a file goes along. `data`: where its data are a copy; null: they are where they are here.
//   kInvalidArgument  a file under `security` cannot be read
//   kUnavailable      the folder cannot be written
absl::Status WriteJobFiles(const std::string& folder, v1::Job job, const DataCopy* data);

// A shell's command here that writes such a folder to stdout, and a script there that puts it at FOLDER/job with rights
// for its user alone, and makes FOLDER's lease.
std::string PackJobCommand(const std::string& folder);
std::string UnpackJobScript(const std::string& folder);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_LAUNCH_JOB_FILES_H_
