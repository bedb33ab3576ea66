// tessera-worker: computes for one job.
#include "worker/worker_command.h"

int main(int argc, char** argv) { return tessera::WorkerCommand(argc, argv, {}); }
