// What a worker takes of a process's limits.
#ifndef TESSERA_WORKER_WORKER_NEEDS_H_
#define TESSERA_WORKER_WORKER_NEEDS_H_

#include <algorithm>
#include <cstdint>

#include "common/rpc/rpc_needs.h"
#include "proto/job.pb.h"

namespace tessera {

inline ProcessNeeds WorkerNeeds(const v1::Job& job) {
  // Signals, renewal and checkpoints; of the threads that compute one is there.
  const int own = 8 + static_cast<int>(std::max<int64_t>(1, job.cluster().threads())) - 1;
  // Each server has two connections, and what it shares of memory is a socket and a file.
  return RpcNeeds(own, 4 * job.cluster().servers().count() + job.cluster().workers());
}

}  // namespace tessera

#endif  // TESSERA_WORKER_WORKER_NEEDS_H_
