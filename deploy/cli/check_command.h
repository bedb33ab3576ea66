// `tessera check JOB.yaml`: is the job right, and what does it say once all defaults are in?
#ifndef TESSERA_DEPLOY_CLI_CHECK_COMMAND_H_
#define TESSERA_DEPLOY_CLI_CHECK_COMMAND_H_

#include <string>
#include <vector>

#include "proto/job.pb.h"

namespace tessera {

struct CheckOptions {
  std::string job_path;
  std::vector<std::string> overrides;
  // All of it as one JSON object on stdout, errors included.
  bool json = false;
};

// Prints the resolved job on stdout, with its digest, size and traffic as comments; returns 0. Or
// lists everything that is wrong with it on stderr, and returns 2.
int CheckJobFile(const CheckOptions& options);

// What `check` notes on a job that has been read without errors (check_notes.h); reads its data where a note depends
// on their rows.
std::vector<std::string> NotesOfCheck(const v1::Job& job);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_CHECK_COMMAND_H_
