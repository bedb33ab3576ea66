// The command line of tessera-worker.
#ifndef TESSERA_WORKER_WORKER_COMMAND_H_
#define TESSERA_WORKER_WORKER_COMMAND_H_

#include "worker/worker_options.h"

namespace tessera {

// Reads the flags into `options`, trains, and returns the process's exit code:
//   0  the job ended normally, or this worker was asked to leave by SIGTERM or Ctrl-C and did
//   1  it could not go on; the last log line of level E says why
//   2  wrong flag, job, data or device, before joining
int WorkerCommand(int argc, char** argv, WorkerOptions options);

}  // namespace tessera

#endif  // TESSERA_WORKER_WORKER_COMMAND_H_
