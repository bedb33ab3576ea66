// `tessera checkpoint HOST:PORT`: a running job writes a checkpoint now.
#ifndef TESSERA_DEPLOY_CLI_CHECKPOINT_COMMAND_H_
#define TESSERA_DEPLOY_CLI_CHECKPOINT_COMMAND_H_

#include <string>

#include "common/rpc/security.h"

namespace tessera {

struct CheckpointOptions {
  // The address of server 0.
  std::string address;
  bool quiet = false;
  // What became of it as one JSON object.
  bool json = false;
  SecurityFiles security;
};

// Asks for one at the next exchange boundary, waits until it is whole, and says which step it is of.
// Returns the process's exit code:
//   0  it is there
//   1  it could not be written, or the job keeps none or does not train; stderr says why
//   2  `address` is none
int RequestCheckpoint(const CheckpointOptions& options);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_CHECKPOINT_COMMAND_H_
