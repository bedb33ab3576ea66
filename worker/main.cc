// tessera-worker: computes for one job.
#include "common/base/compute_environment.h"
#include "common/base/process_limits.h"
#include "common/base/uncaught.h"
#include "worker/worker_command.h"

int main(int argc, char** argv) {
  tessera::StartInComputeEnvironment(argv);
  tessera::OutliveFileSizeLimit();
  tessera::LogUncaught("worker");
  return tessera::WorkerCommand(argc, argv, {});
}
