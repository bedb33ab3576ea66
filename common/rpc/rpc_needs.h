// What gRPC takes of a process's limits.
#ifndef TESSERA_COMMON_RPC_RPC_NEEDS_H_
#define TESSERA_COMMON_RPC_RPC_NEEDS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "common/base/process_limits.h"

namespace tessera {

// Threads that gRPC 1.51 may start where the machine has so many cores, and without which it stands still and says
// nothing: those of callbacks, those of its event engine, and two executors' that grow with what they have to do.
int GrpcThreads(int machine_cores);

// What a process on this machine needs that has `own_threads` beside gRPC's, and so many connections.
ProcessNeeds RpcNeeds(int own_threads, int64_t connections);

// Whether gRPC can wait for sockets in the way that GRPC_POLL_STRATEGY names, where that is set: otherwise it would end
// the process. To be asked before gRPC is used.
//   kInvalidArgument  it cannot; with the value and what it may be
absl::Status CheckPollStrategy();

}  // namespace tessera

#endif  // TESSERA_COMMON_RPC_RPC_NEEDS_H_
