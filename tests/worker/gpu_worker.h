// tessera-worker with the CUDA backend that is linked to it, on whatever GPU that finds.
#ifndef TESSERA_TESTS_WORKER_GPU_WORKER_H_
#define TESSERA_TESTS_WORKER_GPU_WORKER_H_

#include "kernels/cuda/backend.h"
#include "kernels/devices.h"
#include "worker/worker_command.h"

namespace tessera {

inline int GpuWorkerCommand(int argc, char** argv) {
  WorkerOptions options;
  options.make_backend =
      [](absl::string_view device, int threads,
         const DeviceOptions& given) -> absl::StatusOr<std::unique_ptr<Backend>> {
    if (device == "cuda" || device == "cuda:1") {
      return CreateCudaBackend(device == "cuda" ? 0 : 1, given);
    }
    return CreateBackend(device, threads, given);
  };
  return WorkerCommand(argc, argv, options);
}

}  // namespace tessera

#endif  // TESSERA_TESTS_WORKER_GPU_WORKER_H_
