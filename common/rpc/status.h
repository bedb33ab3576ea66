// Errors across a connection: the codes of Abseil and gRPC are the same sixteen, the text is
// carried along.
#ifndef TESSERA_COMMON_RPC_STATUS_H_
#define TESSERA_COMMON_RPC_STATUS_H_

#include <cstddef>

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace tessera {

// What a message may take as the header that it travels in, where all but plain ASCII is three bytes a byte. A peer
// that hears more than 8 KiB of headers takes the call for RESOURCE_EXHAUSTED, and never sees the message.
constexpr size_t kMessageHeaderBytesMax = 4096;

// A message that is too long is cut to its beginning and "...".
grpc::Status ToGrpc(const absl::Status& status);
// A code that Abseil does not know becomes kUnknown.
absl::Status FromGrpc(const grpc::Status& status);

}  // namespace tessera

#endif  // TESSERA_COMMON_RPC_STATUS_H_
