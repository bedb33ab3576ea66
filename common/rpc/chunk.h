// Chunk and PushChunk on the wire, without a copy of the payload.
//
//   message  = *field                     protobuf; fields in any order
//   head     = every field but `payload`  read and written by protobuf, at most kHeadBytesMax
//   payload  = field 15, bytes            read and written in place; of several the last counts
//
// What WriteChunk makes any protobuf implementation reads, and the other way round.
#ifndef TESSERA_COMMON_RPC_CHUNK_H_
#define TESSERA_COMMON_RPC_CHUNK_H_

#include <cstdint>
#include <vector>

#include <google/protobuf/message_lite.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/codec/payload.h"

namespace tessera {

// Payload bytes of one message at most. A longer payload takes several, so that memory is bounded
// and the receiver works while the rest is on its way.
constexpr int64_t kChunkBytesMax = int64_t{4} << 20;
// Payload bytes of the messages that this side sends: received bytes are still in the second-level
// cache when they are copied or checked (docs/design/transfer.md).
constexpr int64_t kChunkBytes = int64_t{1} << 20;
// The most bytes of all fields of a message but the payload.
constexpr int64_t kHeadBytesMax = int64_t{64} << 10;
// A longer message is refused before it is read.
constexpr int64_t kMessageBytesMax = kChunkBytesMax + kHeadBytesMax + 16;
// The most groups within groups in an unknown field.
constexpr int kGroupDepthMax = 64;

// The message of `head` (whose field 15 is not set) followed by field 15 with the bytes of `payload`. The slices
// are referenced. An empty payload is left out.
grpc::ByteBuffer WriteChunk(const google::protobuf::MessageLite& head,
                            absl::Span<const grpc::Slice> payload);

// Takes a message apart: its payload goes to `payload`, which keeps the memory of `message` alive,
// and all the rest to `head`.
//   kInvalidArgument  no protobuf message, or beyond a limit; the outputs are then undefined
absl::Status ReadChunk(const grpc::ByteBuffer& message, google::protobuf::MessageLite* head,
                       Payload* payload);

// Reads a message without payload, of at most kHeadBytesMax, which is copied.
absl::Status ReadMessage(const grpc::ByteBuffer& message, google::protobuf::MessageLite* out);
grpc::ByteBuffer WriteMessage(const google::protobuf::MessageLite& message);

}  // namespace tessera

#endif  // TESSERA_COMMON_RPC_CHUNK_H_
