// A core's name, as messages carry it.
#ifndef TESSERA_COMMON_RPC_CORE_MESSAGE_H_
#define TESSERA_COMMON_RPC_CORE_MESSAGE_H_

#include "absl/status/statusor.h"
#include "common/keyset/sparse_keys.h"
#include "proto/parameter_server.pb.h"

namespace tessera {

v1::SparseKeys ToMessage(const CoreName& core);

// kInvalidArgument: the signature has not 16 bytes.
absl::StatusOr<CoreName> CoreOf(const v1::SparseKeys& message);

}  // namespace tessera

#endif  // TESSERA_COMMON_RPC_CORE_MESSAGE_H_
