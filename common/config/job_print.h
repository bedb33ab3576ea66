// A resolved job as YAML: what `tessera check` shows.
#ifndef TESSERA_COMMON_CONFIG_JOB_PRINT_H_
#define TESSERA_COMMON_CONFIG_JOB_PRINT_H_

#include <string>

#include "proto/job.pb.h"

namespace tessera {

// The job as YAML: every key with its value, defaults included, in the order of job.proto. Reads back to the same
// job and digest, from any directory: its paths are absolute where the job's are.
std::string PrintJob(const v1::Job& job);

}  // namespace tessera

#endif  // TESSERA_COMMON_CONFIG_JOB_PRINT_H_
