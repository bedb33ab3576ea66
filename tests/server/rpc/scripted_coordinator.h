// A coordinator that says on each of a server's standing connections what a test tells it to say.
#ifndef TESSERA_TESTS_SERVER_RPC_SCRIPTED_COORDINATOR_H_
#define TESSERA_TESTS_SERVER_RPC_SCRIPTED_COORDINATOR_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <catch2/catch.hpp>

#include "absl/time/time.h"
#include "common/rpc/grpc_server.h"

namespace tessera {

// Of `Service`, whose Attach is a stream of `Heard` and `Said`.
template <typename Service, typename Heard, typename Said>
class ScriptedCoordinator final : public Service::Service {
 public:
  using Stream = grpc::ServerReaderWriter<Said, Heard>;
  // One connection, counted from 1, that ends when this returns. On a thread of gRPC's: nothing is asserted there.
  using Talk = std::function<grpc::Status(int connection, Stream* stream)>;

  explicit ScriptedCoordinator(Talk talk) : talk_(std::move(talk)) {
    auto started = GrpcServer::Start({"127.0.0.1:0", {this}});
    REQUIRE(started.ok());
    server_ = *std::move(started);
  }
  ~ScriptedCoordinator() override { server_->Shutdown(absl::ZeroDuration()); }

  grpc::Status Attach(grpc::ServerContext*, Stream* stream) override {
    return talk_(++connections_, stream);
  }
  const std::string& address() const { return server_->address(); }

 private:
  const Talk talk_;
  std::atomic<int> connections_{0};
  std::unique_ptr<GrpcServer> server_;
};

}  // namespace tessera

#endif  // TESSERA_TESTS_SERVER_RPC_SCRIPTED_COORDINATOR_H_
