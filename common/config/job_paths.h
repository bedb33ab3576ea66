// Where the files that a job names are.
#ifndef TESSERA_COMMON_CONFIG_JOB_PATHS_H_
#define TESSERA_COMMON_CONFIG_JOB_PATHS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "proto/job.pb.h"

namespace tessera {

// Makes every path that starts at the job file (data.directory, checkpoint.directory, security
// files) start at `directory` instead, the job file's. Absolute and empty ones stay.
void ResolveJobPaths(absl::string_view directory, v1::Job* job);

// The path of a file of data.train or data.test: below data.directory unless it is absolute.
std::string DataPath(const v1::Data& data, absl::string_view file);

// Every path that a resolved job names: data files, certificates, folders.
std::vector<std::string> PathsOf(const v1::Job& job);

}  // namespace tessera

#endif  // TESSERA_COMMON_CONFIG_JOB_PATHS_H_
