// A relay of TCP connections whose connections a test may cut.
#ifndef TESSERA_TESTS_WORKER_RPC_TCP_RELAY_H_
#define TESSERA_TESTS_WORKER_RPC_TCP_RELAY_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/host_port.h"

namespace tessera {

class TcpRelay {
 public:
  // Passes connections to 127.0.0.1:port on, of which at most `connections_max` go through; the others stand.
  explicit TcpRelay(const std::string& to,
                    size_t connections_max = std::numeric_limits<size_t>::max())
      : to_(AddressOf(ParseHostPort(to)->port)), connections_max_(connections_max) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in own = AddressOf(0);
    REQUIRE(bind(listener_, reinterpret_cast<sockaddr*>(&own), sizeof own) == 0);
    REQUIRE(listen(listener_, 64) == 0);
    socklen_t length = sizeof own;
    REQUIRE(getsockname(listener_, reinterpret_cast<sockaddr*>(&own), &length) == 0);
    address_ = absl::StrCat("127.0.0.1:", ntohs(own.sin_port));
    accepts_ = std::thread([this] { Accept(); });
  }
  ~TcpRelay() {
    shutdown(listener_, SHUT_RDWR);
    accepts_.join();
    for (const Way& way : ways_) Cut(way);
    for (std::thread& pump : pumps_) pump.join();
    for (const Way& way : ways_) {
      close(way.near);
      if (way.far >= 0) close(way.far);
    }
    close(listener_);
  }

  const std::string& address() const { return address_; }
  // Cuts one of the connections that there were, by this random number. It may be cut already.
  void CutOne(uint64_t random) {
    absl::MutexLock lock(&mutex_);
    if (ways_.empty()) return;
    Cut(ways_[random % ways_.size()]);
    ++cut_;
  }
  int cut() const {
    absl::MutexLock lock(&mutex_);
    return cut_;
  }

 private:
  struct Way {
    int near = -1;
    int far = -1;  // -1: it does not go on
  };

  static sockaddr_in AddressOf(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }
  static void Cut(const Way& way) {
    shutdown(way.near, SHUT_RDWR);
    if (way.far >= 0) shutdown(way.far, SHUT_RDWR);
  }
  static void Pump(int from, int to) {
    std::vector<char> bytes(1 << 18);
    while (true) {
      const ssize_t got = read(from, bytes.data(), bytes.size());
      if (got <= 0) break;
      for (ssize_t sent = 0; sent < got;) {
        const ssize_t more =
            send(to, bytes.data() + sent, static_cast<size_t>(got - sent), MSG_NOSIGNAL);
        if (more <= 0) break;
        sent += more;
      }
    }
    // The other side sees the end. Both descriptors stay the relay's.
    shutdown(from, SHUT_RDWR);
    shutdown(to, SHUT_RDWR);
  }
  void Accept() {
    while (true) {
      Way way;
      way.near = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (way.near < 0) return;
      absl::MutexLock lock(&mutex_);
      if (ways_.size() < connections_max_) {
        way.far = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const auto* const to = reinterpret_cast<const sockaddr*>(&to_);
        if (connect(way.far, to, sizeof to_) == 0) {
          pumps_.emplace_back(Pump, way.near, way.far);
          pumps_.emplace_back(Pump, way.far, way.near);
        }
      }
      ways_.push_back(way);
    }
  }

  const sockaddr_in to_;
  const size_t connections_max_;
  int listener_ = -1;
  std::string address_;
  std::thread accepts_;
  mutable absl::Mutex mutex_;
  std::vector<Way> ways_;  // the mutex guards it while connections come
  std::vector<std::thread> pumps_;
  int cut_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace tessera

#endif  // TESSERA_TESTS_WORKER_RPC_TCP_RELAY_H_
