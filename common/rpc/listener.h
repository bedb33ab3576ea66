// Takes connections from a port and hands them to gRPC: so many of one host, at a pace, and none while the process has
// no file descriptors to spare.
//
// gRPC's own listener knows no limits, and stops for good at the first connection for which there is no
// descriptor: whoever opens a thousand connections and holds them would shut out everybody else.
//
// New connections of one host wait for their turn, as each may cost gRPC a TLS handshake before it is known whose it
// is. What goes by on a connection is looked at (port_gate.h).
//
// A connection that is too many is closed at once; its host is in the log, at most once a second. One that
// gRPC has closed is noticed when another comes for which there is no room: its descriptor is free, or another
// file's. Who connects without a pause keeps neither Stop nor another address waiting: so many are taken at a time.
#ifndef TESSERA_COMMON_RPC_LISTENER_H_
#define TESSERA_COMMON_RPC_LISTENER_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include <grpcpp/server_builder.h>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tessera {

// Descriptors that connections leave to checkpoints, logs and the like.
constexpr int kFilesKept = 128;

// Owns its sockets, and a thread from Start to Stop.
class Listener {
 public:
  struct Options {
    // host:port, [ipv6]:port; port 0 takes a free one. A host with several addresses is listened on at
    // all of them.
    std::string address;
    // Connections of one host, at least 1.
    int connections_per_host_max = 1;
    // New connections of one host that gRPC gets each second; after a pause it gets as many as there may be at once.
    double new_per_host_per_second = 32;
    // Whether connections begin with a TLS handshake.
    bool is_tls = false;
  };

  //   kInvalidArgument     the address is none, or its host is not known
  //   kFailedPrecondition  the port is taken, or the address is not this machine's
  static absl::StatusOr<std::unique_ptr<Listener>> Bind(const Options& options);
  ~Listener();

  int port() const { return port_; }
  // host:port with the port that was taken.
  const std::string& address() const { return address_; }

  // `acceptor` is gRPC's, whose server runs until Stop has returned.
  void Start(std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor);
  // No connection is taken afterwards, and the port is free.
  void Stop();

  // Connections that were closed as they came.
  uint64_t refused() const { return refused_.load(std::memory_order_relaxed); }

 private:
  // A descriptor's file, for as long as it has that number.
  struct Connection {
    int fd = -1;
    uint64_t inode = 0;
    std::string host;
  };

  // A connection whose host has to wait before it has another one.
  struct Waiting {
    Connection connection;
    int listening = -1;
  };
  // New connections that a host may have by now.
  struct Pace {
    double left = 0;
    absl::Time refilled;
  };

  Listener() = default;
  absl::Status Open(const std::string& host, int port);
  void Run();
  // Takes the connections that are in the system's queue, but for those that are too many for one turn. False: no
  // descriptors are left.
  bool Accept(int listening);
  // Forgets those that gRPC has closed: a look at each that is open, and therefore once a turn.
  void Sweep();
  bool IsTooMany(const std::string& host);
  // Whether it is the host's turn to have another connection, which it then has.
  bool TakeTurn(const std::string& host);
  void HandOver(const Connection& connection, int listening);
  // Hands over those that have waited long enough, in the order in which they came.
  void HandOverWaiting();

  std::string address_;
  int port_ = 0;
  int connections_per_host_max_ = 1;
  double new_per_host_per_second_ = 0;
  bool is_tls_ = false;
  int connections_max_ = 1;
  std::vector<int> sockets_;
  int wake_ = -1;  // an eventfd: Stop
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  // The thread's.
  std::vector<Connection> open_;
  std::unordered_map<std::string, int> by_host_;  // of open_
  std::deque<Waiting> waiting_;                   // each is in open_, too
  std::unordered_map<std::string, Pace> paces_;
  bool has_swept_ = false;  // in this turn
  absl::Time next_log_;
  std::atomic<uint64_t> refused_{0};
  std::thread thread_;
};

}  // namespace tessera

#endif  // TESSERA_COMMON_RPC_LISTENER_H_
