// The command line of tessera-worker.
#ifndef TESSERA_WORKER_WORKER_COMMAND_H_
#define TESSERA_WORKER_WORKER_COMMAND_H_

#include "worker/worker_process.h"

namespace tessera {

// Reads the flags into `options` and runs the worker. Returns the process's exit code: 2 for a bad flag,
// else RunWorker's.
int WorkerCommand(int argc, char** argv, WorkerOptions options);

}  // namespace tessera

#endif  // TESSERA_WORKER_WORKER_COMMAND_H_
