// Errors across a connection: the codes of Abseil and gRPC are the same sixteen, the text is
// carried along.
#ifndef TESSERA_COMMON_RPC_STATUS_H_
#define TESSERA_COMMON_RPC_STATUS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace tessera {

grpc::Status ToGrpc(const absl::Status& status);
// A code that Abseil does not know becomes kUnknown.
absl::Status FromGrpc(const grpc::Status& status);

}  // namespace tessera

#endif  // TESSERA_COMMON_RPC_STATUS_H_
