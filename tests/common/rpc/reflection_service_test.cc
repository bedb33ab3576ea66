#include "common/rpc/reflection_service.h"

#include <google/protobuf/descriptor.pb.h>
#include <grpcpp/create_channel.h>

#include <catch2/catch.hpp>
#include <set>

#include "common/rpc/grpc_server.h"
#include "proto/status.grpc.pb.h"

namespace tessera {
namespace {

using grpc::reflection::v1::ServerReflection;
using grpc::reflection::v1::ServerReflectionRequest;
using grpc::reflection::v1::ServerReflectionResponse;

std::set<std::string> FilesIn(const ServerReflectionResponse& response) {
  std::set<std::string> names;
  for (const std::string& text : response.file_descriptor_response().file_descriptor_proto()) {
    google::protobuf::FileDescriptorProto file;
    REQUIRE(file.ParseFromString(text));
    CHECK(names.insert(file.name()).second);
  }
  return names;
}

TEST_CASE("files come with all that they need, by name, symbol or extension", "[rpc][reflection]") {
  ServerReflectionRequest request;
  request.set_host("h");
  request.set_file_containing_symbol("tessera.v1.Status.Get");
  const auto by_symbol = AnswerReflection(request, {});
  CHECK(by_symbol.valid_host() == "h");
  CHECK(by_symbol.original_request().file_containing_symbol() == "tessera.v1.Status.Get");
  const std::set<std::string> files = FilesIn(by_symbol);
  CHECK(files.count("proto/status.proto") == 1);
  CHECK(files.count("proto/progress.proto") == 1);
  request.set_file_by_filename("proto/status.proto");
  CHECK(FilesIn(AnswerReflection(request, {})) == files);
  request.set_file_by_filename("nowhere.proto");
  CHECK(AnswerReflection(request, {}).error_response().error_code() == grpc::NOT_FOUND);
  request.set_file_containing_symbol("");
  CHECK(AnswerReflection(request, {}).error_response().error_code() == grpc::NOT_FOUND);
  request.set_all_extension_numbers_of_type("tessera.v1.JobStatus");
  CHECK(AnswerReflection(request, {}).all_extension_numbers_response().base_type_name() ==
        "tessera.v1.JobStatus");
  request.mutable_file_containing_extension()->set_containing_type("tessera.v1.JobStatus");
  CHECK(AnswerReflection(request, {}).error_response().error_code() == grpc::NOT_FOUND);
  CHECK(AnswerReflection({}, {}).error_response().error_code() == grpc::INVALID_ARGUMENT);
}

TEST_CASE("a server lists its services to whoever asks either version", "[rpc][reflection]") {
  v1::Status::CallbackService status;
  GrpcServer::Options options;
  options.address = "127.0.0.1:0";
  options.services = {&status};
  const auto server = GrpcServer::Start(options);
  REQUIRE(server.ok());
  const auto channel =
      grpc::CreateChannel((*server)->address(), grpc::InsecureChannelCredentials());
  const auto stub = ServerReflection::NewStub(channel);
  grpc::ClientContext context;
  const auto stream = stub->ServerReflectionInfo(&context);
  for (int i = 0; i < 2; ++i) {
    ServerReflectionRequest request;
    request.set_list_services("*");
    REQUIRE(stream->Write(request));
    ServerReflectionResponse response;
    REQUIRE(stream->Read(&response));
    std::set<std::string> names;
    for (const auto& service : response.list_services_response().service()) {
      names.insert(service.name());
    }
    CHECK(names == std::set<std::string>{"tessera.v1.Status", "grpc.health.v1.Health",
                                         "grpc.reflection.v1.ServerReflection",
                                         "grpc.reflection.v1alpha.ServerReflection"});
  }
  stream->WritesDone();
  CHECK(stream->Finish().ok());
}

}  // namespace
}  // namespace tessera
