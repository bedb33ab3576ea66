#include "common/rpc/rpc_needs.h"

#include <algorithm>

#include <grpc/support/cpu.h>

#include "common/rpc/callback_threads.h"

namespace tessera {
namespace {

// Descriptors for standard streams, files that are read and written, and gRPC's own.
constexpr int kOtherFiles = 40;

}  // namespace

int GrpcThreads(int machine_cores) {
  const int timers_and_first_threads = 10;
  return GrpcCallbackThreads(machine_cores) + std::clamp(machine_cores, 2, 16) +
         5 * machine_cores / 2 + timers_and_first_threads;
}

ProcessNeeds RpcNeeds(int own_threads, int64_t connections) {
  ProcessNeeds needs;
  needs.threads = GrpcThreads(static_cast<int>(gpr_cpu_num_cores())) + own_threads;
  needs.files = static_cast<int>(kOtherFiles + connections);
  return needs;
}

}  // namespace tessera
