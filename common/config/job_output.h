// Where the programs of a job may write what their flags name.
#ifndef TESSERA_COMMON_CONFIG_JOB_OUTPUT_H_
#define TESSERA_COMMON_CONFIG_JOB_OUTPUT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/job.pb.h"

namespace tessera {

// Checks, before anything is written, that an output is no input. OK for "". Looks at files alone, and makes none.
//   kInvalidArgument  `path`, which `flag` names, is the job's file, one that the job names, or one of a checkpoint in
//                     its folders
absl::Status CheckIsNoJobInput(absl::string_view flag, const std::string& path,
                               const std::string& job_path, const v1::Job& job);

// Checks what CheckIsNoJobInput checks, and that the file can be written (kInvalidArgument if not). A file that is
// not there yet is there for a moment: do not ask for a file whose appearance somebody waits for.
absl::Status CheckJobOutput(absl::string_view flag, const std::string& path,
                            const std::string& job_path, const v1::Job& job);

}  // namespace tessera

#endif  // TESSERA_COMMON_CONFIG_JOB_OUTPUT_H_
