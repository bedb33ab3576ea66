// What a server takes of a process's limits.
#ifndef TESSERA_SERVER_SERVER_NEEDS_H_
#define TESSERA_SERVER_SERVER_NEEDS_H_

#include <cstdint>

#include "common/rpc/rpc_needs.h"
#include "proto/job.pb.h"

namespace tessera {

inline ProcessNeeds ServerNeeds(const v1::Job& job) {
  const int64_t workers = job.cluster().workers();
  const int64_t servers = job.cluster().servers().count();
  // Signals, shard, coordinator, host, listener, checkpoints, metrics and page, shared memory; what each followed shard
  // has.
  const int own = 16 + 4 * static_cast<int>(job.cluster().replicas());
  // A worker's pushes and renewals, the socket and the file of memory that it shares, other servers' links
  // (server/port_limits.h).
  return RpcNeeds(own, 4 * workers + 2 * servers);
}

}  // namespace tessera

#endif  // TESSERA_SERVER_SERVER_NEEDS_H_
