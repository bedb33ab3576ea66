// `tessera status HOST:PORT [--watch] [--json] [--tensorboard DIR]`, and with --events what has happened
// (events_command.h).
#ifndef TESSERA_DEPLOY_CLI_STATUS_COMMAND_H_
#define TESSERA_DEPLOY_CLI_STATUS_COMMAND_H_

#include <string>

#include "absl/time/time.h"
#include "common/rpc/security.h"

namespace tessera {

struct StatusOptions {
  std::string address;
  bool watch = false;
  bool json = false;
  // The folder of an event file for TensorBoard; empty: none. With `watch` evaluations are appended as they come.
  std::string tensorboard;
  // What has happened in place of the status; `follow`: and what happens until the job ends.
  bool events = false;
  bool follow = false;
  SecurityFiles security;
  // With `watch`, of a server that tells nothing: how long until that is shown, and until it is given up.
  absl::Duration silence_shown = absl::Seconds(3);
  absl::Duration silence_max = absl::Seconds(30);
};

// Prints the status once, or with `watch` a live table until the job ends or Ctrl-C. Returns the process's exit code;
// stderr says why it is not 0:
//   0  the status was told; with `watch` the job has ended normally
//   1  the server cannot be reached; with `watch` also: the job has failed, the connection is lost, or nothing came
//      for `silence_max`
//   2  wrong address, certificates, token or folder
int ShowStatus(const StatusOptions& options);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_STATUS_COMMAND_H_
