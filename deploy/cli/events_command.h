// `tessera status HOST:PORT --events [--follow] [--json]`.
#ifndef TESSERA_DEPLOY_CLI_EVENTS_COMMAND_H_
#define TESSERA_DEPLOY_CLI_EVENTS_COMMAND_H_

#include <string>

#include "deploy/cli/status_command.h"
#include "proto/status.pb.h"

namespace tessera {

// Prints what has happened in the job, one line each, and with `options.follow` what happens next until the job ends.
// The address and the security of `options` are checked. The exit codes are those of ShowStatus.
int ShowEvents(const StatusOptions& options);

// One event as a line without its break and without control characters: when, what, who, and the words.
std::string EventLine(const v1::JobEvent& event);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_EVENTS_COMMAND_H_
