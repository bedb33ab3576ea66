#include "common/rpc/shared_memory/local_packet.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <vector>

#include <grpcpp/support/slice.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace tessera {
namespace {

struct WireHead {
  uint32_t call;
  uint16_t kind;
  uint16_t code;
};
static_assert(sizeof(WireHead) == 8);

// The text of an error is cut to so many bytes.
constexpr size_t kTextBytesMax = 4096;

absl::Status Send(int connection, WireHead head, absl::Span<const grpc::Slice> body) {
  std::vector<iovec> pieces = {{&head, sizeof head}};
  int64_t bytes = sizeof head;
  for (const grpc::Slice& slice : body) {
    pieces.push_back({const_cast<uint8_t*>(slice.begin()), slice.size()});
    bytes += static_cast<int64_t>(slice.size());
  }
  if (bytes > kPacketBytesMax || pieces.size() > IOV_MAX) {
    return absl::ResourceExhaustedError(
        absl::StrCat("local call: a packet has ", bytes, " bytes in ", pieces.size(),
                     " pieces, want at most ", kPacketBytesMax, " in ", IOV_MAX));
  }
  msghdr message = {};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  // A packet socket takes all of a packet or nothing, so that two threads' packets never mix.
  while (sendmsg(connection, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EMSGSIZE || errno == ENOBUFS) {
      return absl::ResourceExhaustedError(
          absl::StrCat("local call: a packet of ", bytes,
                       " bytes finds no room, as the peer does not read: ", std::strerror(errno)));
    }
    return absl::UnavailableError(absl::StrCat("local call: sendmsg: ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SendPacket(int connection, uint32_t call, PacketKind kind,
                        const grpc::ByteBuffer& body) {
  std::vector<grpc::Slice> slices;
  if (body.Valid() && !body.Dump(&slices).ok()) {
    return absl::InternalError("local call: a message cannot be taken apart");
  }
  return Send(connection, {call, static_cast<uint16_t>(kind), 0}, slices);
}

absl::Status SendEnd(int connection, uint32_t call, const absl::Status& status) {
  const absl::string_view text = status.message().substr(0, kTextBytesMax);
  const grpc::Slice body(text.data(), text.size());
  return Send(connection,
              {call, static_cast<uint16_t>(PacketKind::kEnd), static_cast<uint16_t>(status.code())},
              {&body, 1});
}

PacketReader::PacketReader() : buffer_(new char[kPacketBytesMax]) {}

absl::StatusOr<std::optional<LocalPacket>> PacketReader::Next(int connection) {
  WireHead head = {};
  std::array<iovec, 2> pieces = {
      {{&head, sizeof head}, {buffer_.get(), static_cast<size_t>(kPacketBytesMax)}}};
  msghdr message = {};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  ssize_t got;
  do {
    // No room for control messages: descriptors that come beside a packet are closed by the kernel.
    got = recvmsg(connection, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (got < 0 && errno == EINTR);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return std::nullopt;
  if (got <= 0) {
    return absl::UnavailableError(
        absl::StrCat("local call: the connection has ended",
                     got < 0 ? absl::StrCat(": ", std::strerror(errno)) : ""));
  }
  // The system cuts what is longer than the buffer, and says so.
  const bool is_whole =
      got >= static_cast<ssize_t>(sizeof head) && (message.msg_flags & MSG_TRUNC) == 0;
  if (!is_whole || head.kind < static_cast<uint16_t>(PacketKind::kPull) ||
      head.kind > static_cast<uint16_t>(PacketKind::kEnd) ||
      head.code > static_cast<uint16_t>(absl::StatusCode::kUnauthenticated)) {
    return absl::InvalidArgumentError(absl::StrCat("local call: what came, of ", got,
                                                   " bytes, is no packet of at most ",
                                                   kPacketBytesMax, " bytes"));
  }
  LocalPacket packet;
  packet.call = head.call;
  packet.kind = static_cast<PacketKind>(head.kind);
  packet.code = static_cast<absl::StatusCode>(head.code);
  // Copied, so that the buffer serves the next packet while this one's bytes wait to be folded.
  const grpc::Slice body(buffer_.get(), static_cast<size_t>(got) - sizeof head);
  packet.body = grpc::ByteBuffer(&body, 1);
  return packet;
}

}  // namespace tessera
