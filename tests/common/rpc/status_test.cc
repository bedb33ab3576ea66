#include "common/rpc/status.h"

#include <memory>
#include <string>

#include <catch2/catch.hpp>
#include <grpcpp/grpcpp.h>

#include "absl/strings/match.h"
#include "common/rpc/control_channel.h"
#include "common/rpc/grpc_server.h"
#include "proto/status.grpc.pb.h"

namespace tessera {
namespace {

class Service final : public v1::Status::Service {
 public:
  absl::Status answer;

 private:
  grpc::Status Get(grpc::ServerContext*, const v1::StatusRequest*, v1::JobStatus*) override {
    return ToGrpc(answer);
  }
};

TEST_CASE("a status crosses a connection as it is, and of one that is too long the beginning does",
          "[rpc]") {
  Service service;
  auto server = GrpcServer::Start({"127.0.0.1:0", {&service}});
  REQUIRE(server.ok());
  const auto stub = v1::Status::NewStub(OpenControlChannel((*server)->address()));
  const auto ask = [&](const std::string& message) {
    service.answer = absl::FailedPreconditionError(message);
    grpc::ClientContext context;
    v1::JobStatus reply;
    const absl::Status heard = FromGrpc(stub->Get(&context, {}, &reply));
    CHECK(heard.code() == absl::StatusCode::kFailedPrecondition);
    return std::string(heard.message());
  };
  const std::string plain(kMessageHeaderBytesMax, 'p');
  CHECK(ask("a \"word\"\n\xc3\xa9 %") == "a \"word\"\n\xc3\xa9 %");
  CHECK(ask(plain) == plain);
  CHECK(ask(plain + "p") == plain + "...");
  CHECK(ask(std::string(60000, 'p')) == plain + "...");
  std::string wide;
  for (int i = 0; i < 30000; ++i) wide += "\xc3\xa9";
  const std::string heard = ask(wide);
  CHECK(heard.size() > kMessageHeaderBytesMax / 3 - 3);
  CHECK(absl::StartsWith(wide, heard.substr(0, heard.size() - 3)));
  CHECK(absl::EndsWith(heard, "\xc3\xa9..."));
}

}  // namespace
}  // namespace tessera
