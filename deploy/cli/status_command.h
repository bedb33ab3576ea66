// `tessera status HOST:PORT [--watch] [--json]`.
#ifndef TESSERA_DEPLOY_CLI_STATUS_COMMAND_H_
#define TESSERA_DEPLOY_CLI_STATUS_COMMAND_H_

#include <string>

#include "common/rpc/security.h"

namespace tessera {

struct StatusOptions {
  std::string address;
  bool watch = false;
  bool json = false;
  SecurityFiles security;
};

// Prints the status once, or with `watch` a live table until the job ends or Ctrl-C. Returns 0, 1
// when the server cannot be reached, 2 for a wrong address.
int ShowStatus(const StatusOptions& options);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_STATUS_COMMAND_H_
