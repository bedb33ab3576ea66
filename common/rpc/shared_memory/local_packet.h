// Calls between two processes of one machine that need no network: what is said on a link's socket (SOCK_SEQPACKET)
// once both have said hello (memory_hello.h). A call over gRPC costs about ten times what a packet does, most of it for
// streams, windows and threads, which nothing of one packet needs.
//
//   packet   = call:u32 kind:u16 code:u16 *body    in the machine's order of bytes; at most kPacketBytesMax
//   call     = the worker's number for a call, which it uses once on a link
//
//   worker   kPull, kFetch, kPush   begins a call; body: what the gRPC method of that name has as its first message
//            kCancel                its answer is not wanted any more
//   server   kMessage               a message of the answer
//            kLast                  the last one: the call has ended well
//            kEnd                   the call has ended, with `code` of absl::StatusCode; body: the status's text
//
// A push is one packet, so that it is whole or not there. An answer that was cancelled may still come. The link's end
// is the end of all its calls. Who leaves too much unread, or says anything else, loses the link: nothing is kept for
// it.
#ifndef TESSERA_COMMON_RPC_SHARED_MEMORY_LOCAL_PACKET_H_
#define TESSERA_COMMON_RPC_SHARED_MEMORY_LOCAL_PACKET_H_

#include <cstdint>
#include <memory>
#include <optional>

#include <grpcpp/support/byte_buffer.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/rpc/chunk.h"

namespace tessera {

// A call whose payload and answer have no more bytes than this goes by packets. What is longer is moved in several
// messages, and takes longer than a call does.
constexpr int64_t kLocalPayloadBytesMax = int64_t{128} << 10;
constexpr int64_t kPacketBytesMax = kLocalPayloadBytesMax + kHeadBytesMax + 64;

enum class PacketKind : uint16_t {
  kPull = 1,
  kFetch = 2,
  kPush = 3,
  kCancel = 4,
  kMessage = 5,
  kLast = 6,
  kEnd = 7,
};

struct LocalPacket {
  uint32_t call = 0;
  PacketKind kind = PacketKind::kCancel;
  absl::StatusCode code = absl::StatusCode::kOk;
  grpc::ByteBuffer body;
};

// Sends a packet whole, or not at all; does not wait. Any thread.
//   kResourceExhausted  the peer has not read what came before, or the packet is too long
//   kUnavailable        the connection has ended
absl::Status SendPacket(int connection, uint32_t call, PacketKind kind,
                        const grpc::ByteBuffer& body);
absl::Status SendEnd(int connection, uint32_t call, const absl::Status& status);

// Takes packets from one connection after the other. One thread.
class PacketReader {
 public:
  PacketReader();

  // The next packet; nullopt: there is none yet. Does not wait.
  //   kUnavailable      the connection has ended
  //   kInvalidArgument  what came is no packet
  absl::StatusOr<std::optional<LocalPacket>> Next(int connection);

 private:
  const std::unique_ptr<char[]> buffer_;
};

}  // namespace tessera

#endif  // TESSERA_COMMON_RPC_SHARED_MEMORY_LOCAL_PACKET_H_
