// `tessera history REPORT|HOST:PORT`: a job's evaluations as a table, CSV, JSON or an event file of TensorBoard.
#ifndef TESSERA_DEPLOY_CLI_CURVES_HISTORY_COMMAND_H_
#define TESSERA_DEPLOY_CLI_CURVES_HISTORY_COMMAND_H_

#include <string>

#include "common/rpc/security.h"

namespace tessera {

struct HistoryOptions {
  // A report's file, or the address of server 0 of a running job.
  std::string source;
  bool csv = false;
  bool json = false;
  // The folder of an event file; empty: none.
  std::string tensorboard;
  SecurityFiles security;
};

// Prints the evaluations, and writes the event file where one is wanted. Returns the process's exit code; stderr says
// why it is not 0:
//   0  it was done
//   1  the server cannot be reached, or the event file not be written
//   2  the report or a flag is wrong
int ShowHistory(const HistoryOptions& options);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_CURVES_HISTORY_COMMAND_H_
