// Where a job's report may be written.
#ifndef TESSERA_DEPLOY_CLI_REPORT_PATH_H_
#define TESSERA_DEPLOY_CLI_REPORT_PATH_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/check.h"
#include "common/base/output_file.h"
#include "common/config/job_paths.h"
#include "proto/job.pb.h"

namespace tessera {

// OK for "".
//   kInvalidArgument  `path` cannot be written, or is the job's file, or one that the job names
inline absl::Status CheckReportPath(const std::string& path, const std::string& job_path, const v1::Job& job) {
  std::vector<std::string> inputs = PathsOf(job);
  inputs.push_back(job_path);
  TESSERA_RETURN_IF_ERROR(CheckIsNoInput("--report", path, inputs));
  return CheckWritable("--report", path);
}

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_REPORT_PATH_H_
