#include "common/rpc/shared_memory/memory_hello.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace tessera {
namespace {

constexpr uint64_t kMagic = 0x32306d656d727374;  // "tsrmem02" in memory

struct WireHello {
  uint64_t magic;
  uint64_t link;
  uint64_t memory_bytes;
  uint64_t area;
};

// The user that the kernel shows for one that this process's namespace does not know.
constexpr uid_t kUnmappedUser = 65534;

absl::Status Failed(absl::string_view what) {
  return absl::UnavailableError(absl::StrCat("shared memory: ", what, ": ", std::strerror(errno)));
}

// The address of an abstract socket: a zero and the name, without another zero behind it.
socklen_t AddressOf(const std::string& name, sockaddr_un* address) {
  std::memset(address, 0, sizeof *address);
  address->sun_family = AF_UNIX;
  std::memcpy(address->sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

}  // namespace

bool IsOwnUser(uid_t user) { return user == geteuid() && user != kUnmappedUser; }

absl::Status CheckPeer(int connection, UserCheck may_share) {
  ucred peer;
  socklen_t size = sizeof peer;
  if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return Failed("SO_PEERCRED");
  }
  if (may_share(peer.uid)) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("shared memory: the peer's user is ", peer.uid,
                                                  ", want ", geteuid(), ", who runs this process"));
}

absl::Status SendHello(int connection, const MemoryHello& hello, int memory) {
  WireHello wire = {kMagic, hello.link, static_cast<uint64_t>(hello.memory_bytes),
                    static_cast<uint64_t>(hello.area)};
  iovec bytes = {&wire, sizeof wire};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(rights), &memory, sizeof memory);
  if (sendmsg(connection, &message, MSG_NOSIGNAL) == sizeof wire) return absl::OkStatus();
  return Failed("sendmsg");
}

absl::StatusOr<MemoryHello> ReceiveHello(int connection, OwnedDescriptor* memory) {
  WireHello wire = {};
  iovec bytes = {&wire, sizeof wire};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t got = recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
  if (got < 0) return Failed("recvmsg");
  // More descriptors than there is room for are closed by the kernel.
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    int descriptor = -1;
    std::memcpy(&descriptor, CMSG_DATA(part), sizeof descriptor);
    memory->Reset(descriptor);
  }
  if (got == 0) {
    return absl::UnavailableError("shared memory: the peer has closed the connection");
  }
  if (got != sizeof wire || (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 ||
      wire.magic != kMagic) {
    return absl::InvalidArgumentError(
        absl::StrCat("shared memory: a hello of ", got, " bytes came, want ", sizeof wire,
                     " with one descriptor; the peer is another version"));
  }
  if (!memory->is_open()) {
    return absl::InvalidArgumentError("shared memory: no descriptor came with the hello");
  }
  // Offsets are signed here. What is beyond is no file's.
  const uint64_t largest = uint64_t{1} << 62;
  return MemoryHello{wire.link, static_cast<int64_t>(std::min(wire.memory_bytes, largest)),
                     static_cast<int64_t>(std::min(wire.area, largest))};
}

absl::StatusOr<MemorySocket> ListenForMemory() {
  MemorySocket made;
  // Packets keep their borders, and an abstract name leaves nothing in any folder.
  made.listener.Reset(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made.listener.is_open()) return Failed("socket");
  std::random_device device;
  made.name = absl::StrCat("tessera-", absl::Hex(device(), absl::kZeroPad8),
                           absl::Hex(device(), absl::kZeroPad8));
  sockaddr_un address;
  const socklen_t size = AddressOf(made.name, &address);
  if (bind(made.listener.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) {
    return Failed("bind");
  }
  if (listen(made.listener.get(), 64) != 0) return Failed("listen");
  return made;
}

absl::StatusOr<std::shared_ptr<MemoryLink>> ConnectMemory(const std::string& socket_name,
                                                          uint64_t link, SharedArena* arena,
                                                          absl::Duration limit,
                                                          UserCheck may_share) {
  sockaddr_un address;
  if (socket_name.empty() || socket_name.size() >= sizeof address.sun_path) {
    return absl::InvalidArgumentError(absl::StrCat("shared memory: the socket's name has ",
                                                   socket_name.size(), " bytes, want 1 to ",
                                                   sizeof address.sun_path - 1));
  }
  OwnedDescriptor connection(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!connection.is_open()) return Failed("socket");
  // A server that is frozen just now must not hold this thread up.
  timeval patience = absl::ToTimeval(limit);
  setsockopt(connection.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  setsockopt(connection.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  const socklen_t size = AddressOf(socket_name, &address);
  if (connect(connection.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) {
    const bool is_refused = errno == ECONNREFUSED;
    const absl::Status failed = Failed(absl::StrCat("socket ", socket_name));
    if (!is_refused) return failed;
    return absl::FailedPreconditionError(absl::StrCat(
        failed.message(), "; the server is in another container, with a network of its own"));
  }
  TESSERA_RETURN_IF_ERROR(CheckPeer(connection.get(), may_share));
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<LinkArea> own, LinkArea::Create(arena));
  const absl::Status sent =
      SendHello(connection.get(), {link, arena->bytes(), own->offset()}, arena->descriptor());
  MemoryLink::Peer peer;
  const absl::StatusOr<MemoryHello> hello =
      sent.ok() ? ReceiveHello(connection.get(), &peer.memory) : absl::StatusOr<MemoryHello>(sent);
  if (!hello.ok()) {
    // The server may have mapped the area by now.
    shutdown(connection.get(), SHUT_WR);
    own->Leave(std::move(connection));
    return hello.status();
  }
  peer.connection = std::move(connection);
  peer.memory_bytes = hello->memory_bytes;
  peer.area = hello->area;
  return MemoryLink::Create(link, std::move(own), std::move(peer));
}

}  // namespace tessera
