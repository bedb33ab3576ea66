// What `tessera run` takes of the system's limits, its servers and workers included.
#ifndef TESSERA_DEPLOY_CLI_RUN_RUN_NEEDS_H_
#define TESSERA_DEPLOY_CLI_RUN_RUN_NEEDS_H_

#include <cstdint>

#include "common/rpc/rpc_needs.h"
#include "proto/job.pb.h"
#include "server/server_needs.h"
#include "worker/worker_needs.h"

namespace tessera {

inline ProcessNeeds RunNeeds(const v1::Job& job) {
  const auto process = [](const ProcessNeeds& needs) { return int64_t{1} + needs.threads; };
  // The status and signals; one connection.
  ProcessNeeds needs = RpcNeeds(/*own_threads=*/4, /*connections=*/2);
  needs.children_threads = job.cluster().servers().count() * process(ServerNeeds(job)) +
                           job.cluster().workers() * process(WorkerNeeds(job));
  return needs;
}

// What a run takes whose processes are on other machines: here each of them is a connection.
inline ProcessNeeds ConnectionNeeds(const v1::Job& job) {
  ProcessNeeds needs = RpcNeeds(/*own_threads=*/4, /*connections=*/2);
  const int64_t processes = job.cluster().servers().count() + job.cluster().workers();
  needs.children_threads = processes;
  needs.files += processes;
  return needs;
}

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_RUN_RUN_NEEDS_H_
