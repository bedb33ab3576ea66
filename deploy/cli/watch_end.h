// The end of a command that has followed a job.
#ifndef TESSERA_DEPLOY_CLI_WATCH_END_H_
#define TESSERA_DEPLOY_CLI_WATCH_END_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "proto/status.pb.h"

namespace tessera {

// Tells on stderr what the last status, if one came, does not say of why the stream of statuses has `ended`. Returns
// the exit code, as ShowStatus does with `watch`.
int ConcludeWatch(const std::string& address, const absl::Status& ended,
                  const std::optional<v1::JobStatus>& last);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_WATCH_END_H_
