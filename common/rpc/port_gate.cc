#include "common/rpc/port_gate.h"

#include <dlfcn.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/log_throttle.h"
#include "common/base/steady_clock.h"
#include "common/rpc/frame_limits.h"

namespace tessera {
namespace {

using Bytes = absl::Span<const uint8_t>;

// Descriptors beyond this number are not watched; the listener takes no more than these.
constexpr int kDescriptorsMax = 1 << 20;
// A TLS record's head, a handshake message's head and the version stand before ClientHello's random.
constexpr size_t kRandomAt = 11;
constexpr size_t kRandomBytes = 32;

constexpr int kLinesPerSecond = 8;

std::atomic<uint64_t> closed_count{0};

// What is followed of one connection, whichever way its bytes come.
class Connection {
 public:
  explicit Connection(absl::string_view host) : host_(host) {}

  // Whether the connection goes on.
  bool Received(absl::Span<const Bytes> pieces) ABSL_LOCKS_EXCLUDED(mutex_) {
    return Look(pieces, &ConnectionFrames::Received);
  }
  bool Sent(absl::Span<const Bytes> pieces) ABSL_LOCKS_EXCLUDED(mutex_) {
    return Look(pieces, &ConnectionFrames::Sent);
  }

 private:
  bool Look(absl::Span<const Bytes> pieces,
            const char* (ConnectionFrames::*look)(Bytes, absl::Time)) {
    const absl::Time now = SteadyNow();
    absl::MutexLock lock(&mutex_);
    if (is_closed_) return false;
    for (const Bytes piece : pieces) {
      // Frames are counted after they were read: a connection that breaks a rule ends here, but its last bytes are not
      // undone.
      const char* const why = (frames_.*look)(piece, now);
      if (why == nullptr) continue;
      is_closed_ = true;
      Tell(why);
      return false;
    }
    return true;
  }

  void Tell(const char* why) const {
    static LogThrottle* const throttle = new LogThrottle(kLinesPerSecond, absl::Seconds(1));
    closed_count.fetch_add(1, std::memory_order_relaxed);
    const std::optional<uint64_t> held_back = throttle->Pass(SteadyNow());
    if (!held_back.has_value()) return;
    Log(LogLevel::kWarning,
        absl::StrCat("gate: connection closed host=", host_, " why=\"", why, "\"",
                     *held_back > 0 ? absl::StrCat(" not_logged=", *held_back) : ""));
  }

  const std::string host_;
  absl::Mutex mutex_;
  ConnectionFrames frames_ ABSL_GUARDED_BY(mutex_);
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;
};

// TLS connections whose ClientHello has come, by its random, until the library reads their first bytes.
class Greeted {
 public:
  static Greeted& Get() {
    static Greeted* const greeted = new Greeted;
    return *greeted;
  }
  void Add(const std::string& random, std::shared_ptr<Connection> connection) {
    absl::MutexLock lock(&mutex_);
    connections_[random] = std::move(connection);
  }
  std::shared_ptr<Connection> Take(const std::string& random) {
    absl::MutexLock lock(&mutex_);
    const auto found = connections_.find(random);
    if (found == connections_.end()) return nullptr;
    std::shared_ptr<Connection> result = std::move(found->second);
    connections_.erase(found);
    return result;
  }

 private:
  absl::Mutex mutex_;
  absl::flat_hash_map<std::string, std::shared_ptr<Connection>> connections_
      ABSL_GUARDED_BY(mutex_);
};

// What is known of a descriptor's number. It lives as long as the process, and is given from one connection to the
// next that has the number.
class Watched {
 public:
  void Begin(std::shared_ptr<Connection> connection, bool is_tls) {
    absl::MutexLock lock(&mutex_);
    Forget();
    // Relaxed is enough: the connection is set under the lock, and nothing reads the descriptor before it is handed
    // over.
    is_over_.store(false, std::memory_order_relaxed);
    connection_ = std::move(connection);
    is_tls_ = is_tls;
  }

  // The descriptor is about to be closed: what has its number next is another file. Takes no lock, as it may be called
  // in the child of a fork.
  void End() { is_over_.store(true, std::memory_order_relaxed); }

  // The connection whose frames are read and written as they are; nullptr: none.
  std::shared_ptr<Connection> Plain() {
    if (is_over_.load(std::memory_order_relaxed)) return nullptr;
    absl::MutexLock lock(&mutex_);
    return is_tls_ ? nullptr : connection_;
  }

  // The first bytes of a connection with TLS.
  void Hear(absl::Span<const Bytes> pieces) {
    if (is_over_.load(std::memory_order_relaxed)) return;
    absl::MutexLock lock(&mutex_);
    if (connection_ == nullptr || !is_tls_ || is_greeted_) return;
    for (const Bytes piece : pieces) {
      // The head may come in pieces; only as much of it is kept as the random needs.
      const size_t taken = std::min(piece.size(), kRandomAt + kRandomBytes - hello_.size());
      hello_.append(reinterpret_cast<const char*>(piece.data()), taken);
    }
    if (hello_.size() < kRandomAt + kRandomBytes) return;
    is_greeted_ = true;
    Greeted::Get().Add(hello_.substr(kRandomAt), connection_);
  }

 private:
  // A connection that ended before its handshake must not leave its random behind.
  void Forget() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (is_greeted_) Greeted::Get().Take(hello_.substr(kRandomAt));
    connection_ = nullptr;
    hello_.clear();
    is_greeted_ = false;
  }

  std::atomic<bool> is_over_{true};
  absl::Mutex mutex_;
  std::shared_ptr<Connection> connection_ ABSL_GUARDED_BY(mutex_);
  bool is_tls_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_greeted_ ABSL_GUARDED_BY(mutex_) = false;
  std::string hello_ ABSL_GUARDED_BY(mutex_);
};

std::atomic<Watched*> watched[kDescriptorsMax];

Watched* Find(int fd) {
  return fd >= 0 && fd < kDescriptorsMax ? watched[fd].load(std::memory_order_acquire) : nullptr;
}

// Calls look(pieces) with the first `size` bytes of a message, a few pieces at a time, until it returns false.
template <typename Look>
bool ForPieces(const msghdr& message, size_t size, Look look) {
  std::array<Bytes, 64> pieces;
  size_t count = 0;
  for (size_t i = 0; i < message.msg_iovlen && size > 0; ++i) {
    const iovec& piece = message.msg_iov[i];
    const size_t bytes = std::min(size, piece.iov_len);
    size -= bytes;
    pieces[count++] = Bytes(static_cast<const uint8_t*>(piece.iov_base), bytes);
    if (count < pieces.size() && size > 0) continue;
    if (!look(absl::MakeConstSpan(pieces.data(), count))) return false;
    count = 0;
  }
  return count == 0 || look(absl::MakeConstSpan(pieces.data(), count));
}

// Ends a connection on both sides, and says what a reader or writer is told then.
ssize_t End(int fd) {
  // shutdown and not close: gRPC owns the descriptor, and another file could get its number meanwhile.
  shutdown(fd, SHUT_RDWR);
  errno = ECONNRESET;
  return -1;
}

// The function of that name in the library that would have been called.
template <typename Function>
Function* Real(const char* name) {
  auto* const found = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
  TESSERA_CHECK(found != nullptr);
  return found;
}

// Where an SSL keeps its connection.
int SslIndex() {
  static const int index = SSL_get_ex_new_index(
      0, nullptr, nullptr, nullptr, [](void*, void* held, CRYPTO_EX_DATA*, int, long, void*) {
        delete static_cast<std::shared_ptr<Connection>*>(held);
      });
  return index;
}

// The listener's connection that a server's SSL is; nullptr: it is none.
Connection* Of(SSL* ssl) {
  if (SSL_is_server(ssl) == 0) return nullptr;
  auto* held = static_cast<std::shared_ptr<Connection>*>(SSL_get_ex_data(ssl, SslIndex()));
  if (held != nullptr) return held->get();
  std::string random(kRandomBytes, '\0');
  // The handshake's random is the same on the socket and in the SSL: it tells which connection this SSL belongs to.
  SSL_get_client_random(ssl, reinterpret_cast<unsigned char*>(&random[0]), kRandomBytes);
  std::shared_ptr<Connection> connection = Greeted::Get().Take(random);
  held = new std::shared_ptr<Connection>(std::move(connection));
  TESSERA_CHECK(SSL_set_ex_data(ssl, SslIndex(), held) == 1);
  return held->get();
}

}  // namespace

void WatchConnection(int fd, absl::string_view host, bool is_tls) {
  if (fd >= kDescriptorsMax) return;
  Watched* one = Find(fd);
  if (one == nullptr) {
    one = new Watched;
    watched[fd].store(one, std::memory_order_release);
  }
  one->Begin(std::make_shared<Connection>(host), is_tls);
}

uint64_t ConnectionsClosedByGate() { return closed_count.load(std::memory_order_relaxed); }

}  // namespace tessera

// Declared by sys/socket.h, unistd.h and openssl/ssl.h; the libraries' calls come here.
extern "C" {

ssize_t recvmsg(int fd, msghdr* message, int flags) {
  static auto* const real = tessera::Real<ssize_t(int, msghdr*, int)>("recvmsg");
  const ssize_t size = real(fd, message, flags);
  tessera::Watched* const one = tessera::Find(fd);
  if (size <= 0 || one == nullptr || (flags & (MSG_PEEK | MSG_ERRQUEUE)) != 0) return size;
  // gRPC looks at errno after these calls; what happens in between must not change it.
  const int was = errno;
  const std::shared_ptr<tessera::Connection> connection = one->Plain();
  const bool goes_on = tessera::ForPieces(*message, static_cast<size_t>(size), [&](auto pieces) {
    if (connection != nullptr) return connection->Received(pieces);
    one->Hear(pieces);
    return true;
  });
  errno = was;
  return goes_on ? size : tessera::End(fd);
}

ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  static auto* const real = tessera::Real<ssize_t(int, const msghdr*, int)>("sendmsg");
  const ssize_t size = real(fd, message, flags);
  tessera::Watched* const one = tessera::Find(fd);
  if (size <= 0 || one == nullptr) return size;
  const int was = errno;
  const std::shared_ptr<tessera::Connection> connection = one->Plain();
  const bool goes_on = connection == nullptr ||
                       tessera::ForPieces(*message, static_cast<size_t>(size),
                                          [&](auto pieces) { return connection->Sent(pieces); });
  errno = was;
  return goes_on ? size : tessera::End(fd);
}

int close(int fd) {
  static auto* const real = tessera::Real<int(int)>("close");
  if (tessera::Watched* const one = tessera::Find(fd)) one->End();
  return real(fd);
}

int SSL_read(SSL* ssl, void* bytes, int size) {
  static auto* const real = tessera::Real<int(SSL*, void*, int)>("SSL_read");
  const int read = real(ssl, bytes, size);
  tessera::Connection* const connection = read > 0 ? tessera::Of(ssl) : nullptr;
  if (connection == nullptr) return read;
  const tessera::Bytes piece(static_cast<const uint8_t*>(bytes), static_cast<size_t>(read));
  return connection->Received({piece}) ? read : -1;
}

int SSL_write(SSL* ssl, const void* bytes, int size) {
  static auto* const real = tessera::Real<int(SSL*, const void*, int)>("SSL_write");
  const int written = real(ssl, bytes, size);
  tessera::Connection* const connection = written > 0 ? tessera::Of(ssl) : nullptr;
  if (connection == nullptr) return written;
  const tessera::Bytes piece(static_cast<const uint8_t*>(bytes), static_cast<size_t>(written));
  return connection->Sent({piece}) ? written : -1;
}

}  // extern "C"

namespace tessera {

// Symbols of the program come before those of libraries unless gRPC was linked in another way.
bool GateIsInForce() {
  const auto is_ours = [](const char* name, void* ours) {
    return dlsym(RTLD_DEFAULT, name) == ours;
  };
  return is_ours("recvmsg", reinterpret_cast<void*>(&recvmsg)) &&
         is_ours("sendmsg", reinterpret_cast<void*>(&sendmsg)) &&
         is_ours("close", reinterpret_cast<void*>(&close)) &&
         is_ours("SSL_read", reinterpret_cast<void*>(&SSL_read)) &&
         is_ours("SSL_write", reinterpret_cast<void*>(&SSL_write));
}

}  // namespace tessera
