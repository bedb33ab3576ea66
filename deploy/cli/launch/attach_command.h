// `tessera attach`: what `tessera launch` calls on the machines of a job. Nobody else need.
#ifndef TESSERA_DEPLOY_CLI_LAUNCH_ATTACH_COMMAND_H_
#define TESSERA_DEPLOY_CLI_LAUNCH_ATTACH_COMMAND_H_

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

struct AttachOptions {
  // The folder with the job's files (supervised_files.h).
  std::string folder;
  // The process: "server-0". Empty: all of the folder are ended, and it is removed.
  std::string name;
  // How much of its log the caller has.
  int64_t log_begin = 0;
  // How many seconds the process goes on after the last byte from the caller.
  int grace_seconds = 60;
  // The program and its arguments.
  std::vector<std::string> command;
};

// Starts the process under a supervisor, unless it runs, or has run; writes its log to stdout as it grows; and ends as
// it ends, with its exit code or 128 and its signal. Each byte on stdin renews the lease, and one that is 'T' asks the
// process to end; the end of stdin ends the call, and nothing else, with 255.
// With no name: 0, or 1 where a process is left.
int Attach(const AttachOptions& options);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_LAUNCH_ATTACH_COMMAND_H_
