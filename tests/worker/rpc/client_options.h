// What all clients of tests over running servers are made with.
#ifndef TESSERA_TESTS_WORKER_RPC_CLIENT_OPTIONS_H_
#define TESSERA_TESTS_WORKER_RPC_CLIENT_OPTIONS_H_

#include <cstdint>

#include "tests/server/rpc/running_servers.h"
#include "worker/rpc/parameter_client_grpc.h"

namespace tessera {

// Of member `member`, in the servers' plan's generation.
inline ParameterClientGrpc::Options OptionsFor(const RunningServers& servers, uint64_t member) {
  ParameterClientGrpc::Options options;
  options.servers = servers.addresses();
  options.slices = servers.slices();
  options.layout_hash = servers.layout_hash();
  options.member = MemberId(member);
  options.generation = Generation(3);
  options.job_digest = kDigest;
  return options;
}

}  // namespace tessera

#endif  // TESSERA_TESTS_WORKER_RPC_CLIENT_OPTIONS_H_
