// Texts in messages of the control plane: what is longer than anybody needs is refused before it is kept, and what
// anybody can have logged is logged so often.
#ifndef TESSERA_SERVER_RPC_MESSAGE_LIMITS_H_
#define TESSERA_SERVER_RPC_MESSAGE_LIMITS_H_

#include <google/protobuf/message.h>

#include <cstddef>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace tessera {

// Bytes of one `string` field: digests, addresses, reasons and errors are far shorter. `bytes` fields are
// values, and have the limit of a message.
constexpr size_t kTextBytesMax = size_t{16} << 10;

// Bytes that the coordinator keeps, and logs, of what a worker says of its end.
constexpr size_t kEndWhyBytesMax = 2048;

// Refusals of one kind of caller that are logged in each kRefusalsInterval; of the others their number.
constexpr int kRefusalsLogged = 8;
constexpr absl::Duration kRefusalsInterval = absl::Seconds(1);

// kInvalidArgument, naming the field: a `string` of `message`, or of one within it, is longer.
absl::Status CheckTexts(const google::protobuf::Message& message);

}  // namespace tessera

#endif  // TESSERA_SERVER_RPC_MESSAGE_LIMITS_H_
