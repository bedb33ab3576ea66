#include "common/rpc/listener.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/host_port.h"
#include "common/base/log.h"
#include "common/base/steady_clock.h"
#include "common/rpc/port_gate.h"

namespace tessera {
namespace {

// The pause between two looks for a free descriptor.
constexpr int kPauseMs = 100;
// Connections of one address that are taken before the others, and the end, have their turn.
constexpr int kTakenPerTurn = 64;
// How often it is looked whether a connection that waits has its turn.
constexpr int kTurnMs = 10;
// Hosts whose pace is known; beyond it those that have been quiet are forgotten, and then all.
constexpr size_t kPacesMax = 4096;
constexpr absl::Duration kLogInterval = absl::Seconds(1);

// What a file is, whatever number it has; 0: no such descriptor.
uint64_t InodeOf(int fd) {
  struct stat about;
  return fstat(fd, &about) == 0 ? about.st_ino : 0;
}

// Whether the other side has closed a connection that nobody has read from.
bool IsOver(int fd) {
  char byte = 0;
  const ssize_t size = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR);
}

// The port that the system gave where 0 was asked for.
int PortOf(int fd) {
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) != 0) return 0;
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                           : reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
}

// Sets the port of an address of either family.
void SetPort(sockaddr_storage* address, int port) {
  if (address->ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(address)->sin6_port = htons(static_cast<uint16_t>(port));
  } else {
    reinterpret_cast<sockaddr_in*>(address)->sin_port = htons(static_cast<uint16_t>(port));
  }
}

// A listening socket, or -1 with errno.
int ListenOn(const sockaddr_storage& address, socklen_t size, bool is_dual) {
  const int fd = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const int on = 1, v6_only = is_dual ? 0 : 1;
  // A port whose last owner has just gone is free, and is never shared. What is accepted has the
  // listening socket's options.
  bool set = setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
             setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0;
  if (address.ss_family == AF_INET6) {
    set = set && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, sizeof(v6_only)) == 0;
  }
  if (set && bind(fd, reinterpret_cast<const sockaddr*>(&address), size) == 0 &&
      listen(fd, SOMAXCONN) == 0) {
    return fd;
  }
  // close may change errno, which says why listening failed.
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

// The peer's address in words, IPv4 as such on sockets for both.
std::string HostOf(const sockaddr_storage& peer) {
  char text[INET6_ADDRSTRLEN] = "";
  if (peer.ss_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(&peer)->sin_addr, text, sizeof(text));
    return text;
  }
  const in6_addr& address = reinterpret_cast<const sockaddr_in6*>(&peer)->sin6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&address)) {
    inet_ntop(AF_INET, address.s6_addr + 12, text, sizeof(text));
  } else {
    inet_ntop(AF_INET6, &address, text, sizeof(text));
  }
  return text;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Listener>> Listener::Bind(const Options& options) {
  TESSERA_CHECK(options.connections_per_host_max > 0);
  const absl::optional<HostPort> where = ParseHostPort(options.address);
  if (!where.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("grpc server: address is \"", options.address,
                     "\", want host:port with a port in [0, 65535], an IPv6 address in brackets"));
  }
  std::unique_ptr<Listener> listener(new Listener);
  listener->connections_per_host_max_ = options.connections_per_host_max;
  listener->new_per_host_per_second_ = options.new_per_host_per_second;
  listener->is_tls_ = options.is_tls;
  listener->address_ = options.address;  // For messages, until there is a port.
  TESSERA_RETURN_IF_ERROR(listener->Open(where->host, where->port));
  listener->address_ = HostPort{where->host, listener->port_}.ToString();
  listener->wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  TESSERA_CHECK(listener->wake_ >= 0);
  // The process takes as many file descriptors as the system lets it have.
  rlimit files{};
  TESSERA_CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  TESSERA_CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0);
  const rlim_t most = std::min<rlim_t>(files.rlim_cur, 1 << 20);
  // Half of the descriptors at least, and all but kFilesKept where there are many.
  listener->connections_max_ =
      static_cast<int>(std::max<rlim_t>(most / 2, most > kFilesKept ? most - kFilesKept : 0));
  return listener;
}

absl::Status Listener::Open(const std::string& host, int port) {
  // One socket serves any address of the machine, of IPv4 and IPv6.
  const bool is_any = host == "0.0.0.0" || host == "::";
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int code =
      getaddrinfo(is_any ? "::" : host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (code != 0 && !is_any) {
    return absl::InvalidArgumentError(
        absl::StrCat("grpc server: host of \"", address_, "\" is not known: ", gai_strerror(code)));
  }
  int error = EADDRNOTAVAIL;
  for (const addrinfo* one = code == 0 ? found : nullptr; one != nullptr; one = one->ai_next) {
    sockaddr_storage address{};
    std::memcpy(&address, one->ai_addr, one->ai_addrlen);
    // The others get the port of the first one.
    SetPort(&address, port_ == 0 ? port : port_);
    const int fd = ListenOn(address, one->ai_addrlen, is_any);
    if (fd < 0) {
      // A name may have an address that this machine has not, such as ::1 where there is no IPv6.
      if (error != EADDRINUSE) error = errno;
      continue;
    }
    sockets_.push_back(fd);
    port_ = PortOf(fd);
  }
  if (code == 0) freeaddrinfo(found);
  if (sockets_.empty() && is_any) {
    // The machine has no IPv6: the socket is made for IPv4.
    sockaddr_storage address{};
    address.ss_family = AF_INET;
    SetPort(&address, port);
    const int fd = ListenOn(address, sizeof(sockaddr_in), false);
    if (fd < 0) {
      error = errno;
    } else {
      sockets_.push_back(fd);
      port_ = PortOf(fd);
    }
  }
  if (!sockets_.empty() && error != EADDRINUSE) return absl::OkStatus();
  if (error == EADDRINUSE) {
    return absl::FailedPreconditionError(
        absl::StrCat("grpc server: port ", port, " of \"", address_,
                     "\" is taken, want a free one; stop its owner or take another"));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "grpc server: \"", address_, "\" cannot be listened on: ", std::strerror(error)));
}

Listener::~Listener() {
  Stop();
  if (wake_ >= 0) close(wake_);
}

void Listener::Start(std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor) {
  if (!GateIsInForce()) {
    Log(LogLevel::kWarning,
        "listener: frames are not looked at, as gRPC does not read and write by the gate; want "
        "programs that are linked with gRPC");
  }
  acceptor_ = std::move(acceptor);
  thread_ = std::thread([this] { Run(); });
}

void Listener::Stop() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    TESSERA_CHECK(write(wake_, &one, sizeof(one)) == sizeof(one));
    thread_.join();
  }
  for (const int fd : std::exchange(sockets_, {})) close(fd);
  for (const Waiting& one : std::exchange(waiting_, {})) close(one.connection.fd);
}

void Listener::Run() {
  std::vector<pollfd> polled;
  for (const int fd : sockets_) polled.push_back({fd, POLLIN, 0});
  polled.push_back({wake_, POLLIN, 0});
  while (true) {
    // Connections that wait for their turn are looked at every kTurnMs; without any the thread sleeps until something
    // comes.
    const int ready = poll(polled.data(), polled.size(), waiting_.empty() ? -1 : kTurnMs);
    TESSERA_CHECK(ready >= 0 || errno == EINTR);
    if (polled.back().revents != 0) return;
    has_swept_ = false;
    HandOverWaiting();
    for (size_t i = 0; ready > 0 && i + 1 < polled.size(); ++i) {
      if (polled[i].revents == 0 || Accept(polled[i].fd)) continue;
      // The listener pauses here: the connection waits in the queue, and would be reported again at once.
      pollfd stop{wake_, POLLIN, 0};
      poll(&stop, 1, kPauseMs);
    }
  }
}

bool Listener::Accept(int listening) {
  for (int taken = 0; taken < kTakenPerTurn; ++taken) {
    sockaddr_storage peer{};
    socklen_t size = sizeof(peer);
    const int fd =
        accept4(listening, reinterpret_cast<sockaddr*>(&peer), &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      const bool has_none =
          errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      // An error that lasts is logged once per second, not once per connection.
      if (has_none && SteadyNow() >= next_log_) {
        next_log_ = SteadyNow() + kLogInterval;
        Log(LogLevel::kWarning,
            absl::StrCat("listener: connections wait why=\"", std::strerror(errno), "\""));
      }
      return !has_none;
    }
    const std::string host = HostOf(peer);
    if (IsTooMany(host)) {
      refused_.fetch_add(1, std::memory_order_relaxed);
      close(fd);
      continue;
    }
    open_.push_back({fd, InodeOf(fd), host});
    ++by_host_[host];
    // Who comes while others of its host wait queues behind them.
    const bool is_waiting =
        std::any_of(waiting_.begin(), waiting_.end(),
                    [&host](const Waiting& one) { return one.connection.host == host; });
    if (!is_waiting && TakeTurn(host)) {
      HandOver(open_.back(), listening);
    } else {
      waiting_.push_back({open_.back(), listening});
    }
  }
  return true;  // What waits is reported again at once.
}

void Listener::HandOver(const Connection& connection, int listening) {
  // The gate must know the descriptor before gRPC reads from it.
  WatchConnection(connection.fd, connection.host, is_tls_);
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters given;
  given.listener_fd = listening;
  given.fd = connection.fd;
  acceptor_->HandleNewConnection(&given);
}

void Listener::HandOverWaiting() {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    const Connection& connection = it->connection;
    if (IsOver(connection.fd)) {
      close(connection.fd);
    } else if (TakeTurn(connection.host)) {
      HandOver(connection, it->listening);
    } else {
      ++it;
      continue;
    }
    it = waiting_.erase(it);
  }
}

bool Listener::TakeTurn(const std::string& host) {
  const absl::Time now = SteadyNow();
  const double most = connections_per_host_max_;
  // Tokens that came since the last look, up to as many connections as a host may have.
  const auto left = [&](const Pace& pace) {
    return std::min(
        most, pace.left + absl::ToDoubleSeconds(now - pace.refilled) * new_per_host_per_second_);
  };
  if (paces_.size() >= kPacesMax && paces_.count(host) == 0) {
    for (auto it = paces_.begin(); it != paces_.end();) {
      // Hosts whose bucket is full have been quiet and are as good as new.
      it = left(it->second) >= most ? paces_.erase(it) : std::next(it);
    }
    if (paces_.size() >= kPacesMax) paces_.clear();
  }
  Pace& pace = paces_.try_emplace(host, Pace{most, now}).first->second;
  pace = {left(pace), now};
  if (pace.left < 1) return false;
  pace.left -= 1;
  return true;
}

bool Listener::IsTooMany(const std::string& host) {
  const auto has_room = [&] {
    const auto found = by_host_.find(host);
    const int of_host = found == by_host_.end() ? 0 : found->second;
    return of_host < connections_per_host_max_ && static_cast<int>(open_.size()) < connections_max_;
  };
  if (has_room()) return false;
  // Connections are closed by gRPC, which tells nobody: descriptors that are another file by now are found by a sweep,
  // once per round at most.
  if (!std::exchange(has_swept_, true)) Sweep();
  if (has_room()) return false;
  if (SteadyNow() >= next_log_) {
    next_log_ = SteadyNow() + kLogInterval;
    Log(LogLevel::kWarning,
        absl::StrCat("server: connection refused host=", host, " open=", by_host_[host],
                     " want_at_most=", connections_per_host_max_, " open_of_all=", open_.size(),
                     " want_at_most=", connections_max_, " refused=", refused_.load() + 1));
  }
  return true;
}

void Listener::Sweep() {
  by_host_.clear();
  waiting_.erase(std::remove_if(waiting_.begin(), waiting_.end(),
                                [](const Waiting& one) {
                                  if (!IsOver(one.connection.fd)) return false;
                                  close(one.connection.fd);
                                  return true;
                                }),
                 waiting_.end());
  open_.erase(std::remove_if(open_.begin(), open_.end(),
                             [](const Connection& c) { return InodeOf(c.fd) != c.inode; }),
              open_.end());
  for (const Connection& connection : open_) ++by_host_[connection.host];
}

}  // namespace tessera
