#include "common/rpc/rpc_needs.h"

#include <algorithm>
#include <cstdlib>

#include <grpc/support/cpu.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/printable.h"
#include "common/rpc/callback_threads.h"

namespace tessera {
namespace {

// Descriptors for standard streams, files that are read and written, and gRPC's own.
constexpr int kOtherFiles = 40;

}  // namespace

int GrpcThreads(int machine_cores) {
  // Timers, the executor and what the first calls start, as counted with gRPC 1.51.
  const int timers_and_first_threads = 10;
  return GrpcCallbackThreads(machine_cores) + std::clamp(machine_cores, 2, 16) +
         5 * machine_cores / 2 + timers_and_first_threads;
}

// gRPC takes the first of the listed ways that it has.
absl::Status CheckPollStrategy() {
  const char* const strategy = getenv("GRPC_POLL_STRATEGY");
  if (strategy == nullptr) return absl::OkStatus();
  for (const absl::string_view way : absl::StrSplit(strategy, ',')) {
    if (way == "all" || way == "epoll1" || way == "poll") return absl::OkStatus();
    if (way == "none") break;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("GRPC_POLL_STRATEGY: is \"", ToPrintable(strategy),
                   "\", by which gRPC waits for no socket, want epoll1, poll or all; unset it"));
}

ProcessNeeds RpcNeeds(int own_threads, int64_t connections) {
  ProcessNeeds needs;
  needs.threads = GrpcThreads(static_cast<int>(gpr_cpu_num_cores())) + own_threads;
  needs.files = static_cast<int>(kOtherFiles + connections);
  return needs;
}

}  // namespace tessera
