// How a process came to run its job: what the job's report says of that (JobOrigin of proto/status.proto).
#ifndef TESSERA_COMMON_CONFIG_JOB_ORIGIN_H_
#define TESSERA_COMMON_CONFIG_JOB_ORIGIN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/status.pb.h"

namespace tessera {

// The origin of a job that this process starts now; `arguments` are its own, its name first.
v1::JobOrigin OriginOf(absl::Span<char* const> arguments, const std::string& job_path,
                       const std::vector<std::string>& overrides);

// The origin as one argument of a child process, which reports it in place of its own.
std::string OriginText(const v1::JobOrigin& origin);
// Reads what OriginText wrote. kInvalidArgument: the text is none of its.
absl::StatusOr<v1::JobOrigin> OriginOfText(const std::string& text);

}  // namespace tessera

#endif  // TESSERA_COMMON_CONFIG_JOB_ORIGIN_H_
