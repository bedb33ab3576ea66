#include "deploy/doctor/reachability.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "common/base/check.h"
#include "common/base/host_port.h"

namespace tessera {
namespace {

Reach TryOne(const addrinfo& to, absl::Duration patience) {
  const int fd = socket(to.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, to.ai_protocol);
  if (fd < 0) return Reach::kNoRoute;
  int error = connect(fd, to.ai_addr, to.ai_addrlen) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    pollfd waiting{fd, POLLOUT, 0};
    const int ready = poll(&waiting, 1, static_cast<int>(absl::ToInt64Milliseconds(patience)));
    socklen_t size = sizeof(error);
    if (ready <= 0) {
      error = ETIMEDOUT;
    } else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
      error = errno;
    }
  }
  close(fd);
  if (error == 0) return Reach::kOpen;
  if (error == ECONNREFUSED) return Reach::kRefused;
  return error == ETIMEDOUT ? Reach::kSilent : Reach::kNoRoute;
}

}  // namespace

Reach TryConnect(const std::string& address, absl::Duration patience) {
  const absl::optional<HostPort> where = ParseHostPort(address);
  TESSERA_CHECK(where.has_value());
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code =
      getaddrinfo(where->host.c_str(), std::to_string(where->port).c_str(), &hints, &found);
  if (code != 0) return Reach::kUnknownHost;
  Reach best = Reach::kNoRoute;
  for (const addrinfo* to = found; to != nullptr && best != Reach::kOpen; to = to->ai_next) {
    const Reach reach = TryOne(*to, patience);
    if (static_cast<int>(reach) < static_cast<int>(best)) best = reach;
  }
  freeaddrinfo(found);
  return best;
}

}  // namespace tessera
