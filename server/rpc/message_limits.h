// Texts in messages of the control plane: what is longer than anybody needs is refused before it is kept.
#ifndef TESSERA_SERVER_RPC_MESSAGE_LIMITS_H_
#define TESSERA_SERVER_RPC_MESSAGE_LIMITS_H_

#include <google/protobuf/message.h>

#include <cstddef>

#include "absl/status/status.h"

namespace tessera {

// Bytes of one `string` field: digests, addresses, reasons and errors are far shorter. `bytes` fields are
// values, and have the limit of a message.
constexpr size_t kTextBytesMax = size_t{16} << 10;

// kInvalidArgument, naming the field: a `string` of `message`, or of one within it, is longer.
absl::Status CheckTexts(const google::protobuf::Message& message);

}  // namespace tessera

#endif  // TESSERA_SERVER_RPC_MESSAGE_LIMITS_H_
