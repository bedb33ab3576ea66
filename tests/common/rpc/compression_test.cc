// Whoever compresses is refused, by servers and by clients.
#include "common/rpc/compression.h"

#include <chrono>
#include <memory>
#include <string>

#include <catch2/catch.hpp>
#include <grpcpp/grpcpp.h>

#include "absl/strings/str_cat.h"
#include "common/rpc/control_channel.h"
#include "common/rpc/grpc_server.h"
#include "common/rpc/transport.h"
#include "proto/status.grpc.pb.h"
#include "tests/common/rpc/compressed_call.h"

namespace tessera {
namespace {

class Service final : public v1::Status::Service {
 public:
  int calls = 0;

 private:
  grpc::Status Get(grpc::ServerContext* context, const v1::StatusRequest*,
                   v1::JobStatus* reply) override {
    ++calls;
    if (compresses) context->set_compression_algorithm(GRPC_COMPRESS_GZIP);
    reply->set_job(std::string(1000, 'j'));
    return grpc::Status::OK;
  }

 public:
  bool compresses = false;
};

grpc::Status Ask(const std::shared_ptr<grpc::Channel>& channel,
                 grpc_compression_algorithm algorithm = GRPC_COMPRESS_NONE) {
  grpc::ClientContext context;
  context.set_compression_algorithm(algorithm);
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  v1::JobStatus reply;
  v1::StatusRequest request;
  return v1::Status::NewStub(channel)->Get(&context, request, &reply);
}

TEST_CASE("a compressed request is refused and never unpacked, a plain one is served",
          "[rpc][compression]") {
  Service service;
  auto server = GrpcServer::Start({"127.0.0.1:0", {&service}});
  REQUIRE(server.ok());
  CheckThatNothingIsUnpacked((*server)->port(), "/tessera.v1.Status/Get");
  CHECK(service.calls == 0);
  for (const grpc_compression_algorithm algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP}) {
    const auto channel =
        grpc::CreateChannel((*server)->address(), grpc::InsecureChannelCredentials());
    CHECK(Ask(channel, algorithm).error_code() == grpc::StatusCode::UNIMPLEMENTED);
  }
  CHECK(service.calls == 0);
  CHECK(Ask(OpenControlChannel((*server)->address())).ok());
  CHECK(Ask(OpenChannel((*server)->address())).ok());
}

TEST_CASE("a compressed reply is refused", "[rpc][compression]") {
  Service service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  REQUIRE(server != nullptr);
  const std::string address = absl::StrCat("127.0.0.1:", port);
  for (const auto& channel : {OpenControlChannel(address), OpenChannel(address)}) {
    service.compresses = false;
    CHECK(Ask(channel).ok());
    service.compresses = true;
    CHECK(Ask(channel).error_code() == grpc::StatusCode::UNIMPLEMENTED);
  }
}

}  // namespace
}  // namespace tessera
