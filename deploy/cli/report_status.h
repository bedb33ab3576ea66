// A report, read again.
#ifndef TESSERA_DEPLOY_CLI_REPORT_STATUS_H_
#define TESSERA_DEPLOY_CLI_REPORT_STATUS_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "proto/status.pb.h"

namespace tessera {

// The status that `report`, the JSON of server 0's report, was made of, as far as the closing table and the list of
// evaluations tell of it; traffic is that of one worker. For who comes too late to ask server 0.
//   kInvalidArgument  it is no report
absl::StatusOr<v1::JobStatus> StatusOfReport(const std::string& report);

// Whether the job has ended and the status has the report.
bool HasReport(const std::optional<v1::JobStatus>& status);

// Returns `latest`; where that has no report, what the report in the file at `path` tells, if there is one.
std::optional<v1::JobStatus> WithReport(std::optional<v1::JobStatus> latest,
                                        const std::string& path);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_REPORT_STATUS_H_
