// tessera-worker: computes for one job.
#include "common/base/uncaught.h"
#include "common/base/waiting_threads.h"
#include "worker/worker_command.h"

int main(int argc, char** argv) {
  tessera::StartWithShortWaits(argv);
  tessera::LogUncaught("worker");
  return tessera::WorkerCommand(argc, argv, {});
}
