// A gRPC server on one address, with health checks and reflection.
#ifndef TESSERA_COMMON_RPC_GRPC_SERVER_H_
#define TESSERA_COMMON_RPC_GRPC_SERVER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/channel.h>
#include <grpcpp/impl/codegen/service_type.h>
#include <grpcpp/server.h>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/rpc/listener.h"

namespace tessera {

// Serves from Start until Shutdown or its end. Calls come on gRPC's threads.
class GrpcServer {
 public:
  struct Options {
    // host:port; port 0 takes a free one.
    std::string address;
    // The services, which must outlive the server.
    std::vector<grpc::Service*> services;
    // The most connections of one host; more are closed as they come.
    int connections_per_host_max = 1024;
    // The most bytes that connections hold of what came, staged pushes included; beyond it gRPC stops reading, and
    // then ends calls. 0: no limit.
    int64_t receive_bytes_max = 0;
  };

  //   kInvalidArgument     the address is none
  //   kFailedPrecondition  the port is taken, or the address is not this machine's
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(const Options& options);
  // Ends the server as Shutdown(absl::ZeroDuration()) does.
  ~GrpcServer();

  int port() const { return listener_->port(); }
  // host:port with the port that was taken.
  const std::string& address() const { return listener_->address(); }
  // The number of connections that were refused because there were too many.
  uint64_t connections_refused() const { return listener_->refused(); }

  // Opens a connection to the server's own services from within the process: no socket, handshake or token, and
  // none of the limits on who comes by the port. It is for calls of the control plane, which end before the server
  // does.
  std::shared_ptr<grpc::Channel> OpenWithin();

  // Sets what health checks are told; the server counts as serving from the start.
  void SetServing(bool serving);

  // Takes no new calls, lets the others finish for `grace`, then cancels them; returns when all
  // have ended. Whoever answers calls (a shard's thread) must still run.
  void Shutdown(absl::Duration grace);

 private:
  GrpcServer() = default;

  bool stopped_ = false;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace tessera

#endif  // TESSERA_COMMON_RPC_GRPC_SERVER_H_
