// Server reflection, version 1: what tools of today ask for first. The library that is here has v1alpha alone.
#ifndef TESSERA_COMMON_RPC_REFLECTION_SERVICE_H_
#define TESSERA_COMMON_RPC_REFLECTION_SERVICE_H_

#include <string>
#include <vector>

#include "proto/grpc/reflection.grpc.pb.h"

namespace tessera {

// The answer of a server that has these services and the messages that are linked into this program.
grpc::reflection::v1::ServerReflectionResponse AnswerReflection(
    const grpc::reflection::v1::ServerReflectionRequest& request,
    const std::vector<std::string>& services);

// Gives the service to every server that is built from now on. Called once, before the first.
void AddReflectionToServers();

}  // namespace tessera

#endif  // TESSERA_COMMON_RPC_REFLECTION_SERVICE_H_
