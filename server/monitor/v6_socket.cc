#include "server/monitor/v6_socket.h"

#include <dirent.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/numbers.h"

namespace tessera {
namespace {

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

// The addresses that a name stands for, to listen at.
Addresses Find(int family, const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_family = family;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  return {code == 0 ? found : nullptr, freeaddrinfo};
}

// Whether the socket listens at 127.0.0.1:port.
bool Listens(int fd, int port) {
  int listens = 0;
  socklen_t size = sizeof(listens);
  if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0) return false;
  sockaddr_storage bound{};
  size = sizeof(bound);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) != 0) return false;
  const auto& v4 = reinterpret_cast<const sockaddr_in&>(bound);
  return bound.ss_family == AF_INET && v4.sin_addr.s_addr == htonl(INADDR_LOOPBACK) &&
         ntohs(v4.sin_port) == port;
}

}  // namespace

bool IsV6Alone(const std::string& host) {
  return Find(AF_INET, host, 0) == nullptr && Find(AF_INET6, host, 0) != nullptr;
}

absl::StatusOr<int> ListenV6(const std::string& host, int port) {
  const Addresses found = Find(AF_INET6, host, port);
  if (found == nullptr) return absl::NotFoundError(host);
  const int fd = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::FailedPreconditionError(std::strerror(errno));
  const int on = 1, v6_only = host == "::" ? 0 : 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, sizeof(v6_only));
  if (bind(fd, found->ai_addr, found->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0) return fd;
  const int error = errno;
  close(fd);
  if (error == EADDRINUSE) return absl::AlreadyExistsError(std::strerror(error));
  return absl::FailedPreconditionError(std::strerror(error));
}

int PortOfSocket(int fd) {
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) != 0) return 0;
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(bound).sin6_port
                                           : reinterpret_cast<sockaddr_in&>(bound).sin_port);
}

bool ReplaceListener(int port, int fd) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open_files(opendir("/proc/self/fd"), closedir);
  if (open_files == nullptr) return false;
  while (const dirent* each = readdir(open_files.get())) {
    int listener = -1;
    if (!absl::SimpleAtoi(each->d_name, &listener) || !Listens(listener, port)) continue;
    if (dup3(fd, listener, O_CLOEXEC) < 0) return false;
    close(fd);
    return true;
  }
  return false;
}

}  // namespace tessera
