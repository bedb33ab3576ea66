#include "deploy/doctor/reachability.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

#include "common/base/check.h"
#include "common/base/host_port.h"

namespace tessera {
namespace {

// Tries one address, for so long at most: a machine that is not there answers nothing at all.
Reach TryOne(const addrinfo& to, absl::Duration patience) {
  // Without O_NONBLOCK connect waits for minutes.
  const int fd = socket(to.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, to.ai_protocol);
  if (fd < 0) return Reach::kNoRoute;
  int error = connect(fd, to.ai_addr, to.ai_addrlen) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    pollfd waiting{fd, POLLOUT, 0};
    const int ready = poll(&waiting, 1, static_cast<int>(absl::ToInt64Milliseconds(patience)));
    socklen_t size = sizeof(error);
    // poll tells only that something happened: the socket has the error.
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

// All addresses of the host; nullptr: it is not known.
std::unique_ptr<addrinfo, void (*)(addrinfo*)> AddressesOf(const std::string& address) {
  const absl::optional<HostPort> where = ParseHostPort(address);
  TESSERA_CHECK(where.has_value());
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code =
      getaddrinfo(where->host.c_str(), std::to_string(where->port).c_str(), &hints, &found);
  return {code == 0 ? found : nullptr, freeaddrinfo};
}

// Tries to take the port. Returns 0, or errno.
int TryBind(const addrinfo& to, bool any_port) {
  sockaddr_storage at{};
  std::memcpy(&at, to.ai_addr, to.ai_addrlen);
  if (any_port && at.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(&at)->sin6_port = 0;
  } else if (any_port) {
    reinterpret_cast<sockaddr_in*>(&at)->sin_port = 0;
  }
  const int fd = socket(to.ai_family, SOCK_STREAM | SOCK_CLOEXEC, to.ai_protocol);
  if (fd < 0) return errno;
  const int on = 1;
  // A port is not taken by connections that have just ended.
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const int error =
      bind(fd, reinterpret_cast<const sockaddr*>(&at), to.ai_addrlen) == 0 ? 0 : errno;
  close(fd);
  return error;
}

}  // namespace

Reach TryConnect(const std::string& address, absl::Duration patience) {
  const auto found = AddressesOf(address);
  if (found == nullptr) return Reach::kUnknownHost;
  Reach best = Reach::kNoRoute;
  for (const addrinfo* to = found.get(); to != nullptr && best != Reach::kOpen; to = to->ai_next) {
    const Reach reach = TryOne(*to, patience);
    // Reach's order is from best to worst: one address that answers is enough.
    if (static_cast<int>(reach) < static_cast<int>(best)) best = reach;
  }
  return best;
}

OwnPort TryOwnPort(const std::string& address) {
  OwnPort own;
  const auto found = AddressesOf(address);
  for (const addrinfo* to = found.get(); to != nullptr; to = to->ai_next) {
    // An address that cannot be bound with any port is another machine's.
    if (TryBind(*to, /*any_port=*/true) != 0) continue;
    own.is_own = true;
    const int error = TryBind(*to, /*any_port=*/false);
    if (error != 0 && own.problem.empty()) own.problem = std::strerror(error);
  }
  return own;
}

}  // namespace tessera
