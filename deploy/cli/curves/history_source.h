// Where a job's evaluations are read: its report, or the job itself while it runs.
#ifndef TESSERA_DEPLOY_CLI_CURVES_HISTORY_SOURCE_H_
#define TESSERA_DEPLOY_CLI_CURVES_HISTORY_SOURCE_H_

#include <string>

#include "absl/status/statusor.h"
#include "proto/status.pb.h"

namespace tessera {

// Reads the report in the file at `path`.
//   kNotFound         there is no such file, or it cannot be read
//   kInvalidArgument  it is no report
absl::StatusOr<v1::JobStatus> ReadReport(const std::string& path);

// Asks the server at `address`, HOST:PORT, for its status, with the security that UseSecurity has set; with
// `recent_history` the evaluations before the newest ones stay there. A server's own code where it refuses,
// kUnavailable or kDeadlineExceeded where it does not answer.
absl::StatusOr<v1::JobStatus> AskForStatus(const std::string& address, bool recent_history = false);

// Whether `source` is to be asked for and not read: it is HOST:PORT, and no file has that name.
bool IsAsked(const std::string& source);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_CURVES_HISTORY_SOURCE_H_
