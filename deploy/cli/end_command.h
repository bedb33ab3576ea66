// `tessera drain HOST:PORT` and `tessera stop HOST:PORT`: a running job ends, well or at once.
#ifndef TESSERA_DEPLOY_CLI_END_COMMAND_H_
#define TESSERA_DEPLOY_CLI_END_COMMAND_H_

#include <string>

#include "common/rpc/security.h"

namespace tessera {

struct EndOptions {
  // The address of server 0, or of the server that was elected.
  std::string address;
  // The reason, which all logs have.
  std::string reason;
  bool quiet = false;
  SecurityFiles security;
};

// Drain: all finish the exchange that they are in, evaluate, report and end. Stop: the job ends now, as failed. Returns
// once the job has heard it, with the process's exit code:
//   0  it has
//   1  nobody heard it; stderr says why
//   2  the address or the token is wrong
int RequestDrain(const EndOptions& options);
int RequestStop(const EndOptions& options);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_END_COMMAND_H_
