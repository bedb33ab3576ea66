// What tests of the parameter client share: a worker's arrays, and a server whose answers a test chooses.
#ifndef TESSERA_TESTS_WORKER_RPC_SCRIPTED_SERVER_H_
#define TESSERA_TESTS_WORKER_RPC_SCRIPTED_SERVER_H_

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>
#include <grpcpp/grpcpp.h>

#include "absl/types/span.h"
#include "proto/parameter_server.grpc.pb.h"
#include "tests/server/rpc/running_servers.h"
#include "tests/worker/rpc/client_options.h"
#include "worker/rpc/parameter_client_grpc.h"

namespace tessera {

// A worker's arrays.
struct Replica {
  explicit Replica(const ModelShape& shape, float value = 0) {
    for (const ParameterSpec& spec : shape.parameters) data.emplace_back(spec.size(), value);
  }
  operator ParameterArrays() {
    ParameterArrays arrays;
    for (auto& d : data) arrays.push_back(absl::MakeSpan(d));
    return arrays;
  }
  operator ConstParameterArrays() const {
    ConstParameterArrays arrays;
    for (const auto& d : data) arrays.push_back(absl::MakeConstSpan(d));
    return arrays;
  }
  std::vector<std::vector<float>> data;
};

inline bool SameBits(const Replica& a, const Replica& b) {
  for (size_t i = 0; i < a.data.size(); ++i) {
    if (std::memcmp(a.data[i].data(), b.data[i].data(), a.data[i].size() * 4) != 0) return false;
  }
  return true;
}

inline std::unique_ptr<ParameterClientGrpc> Client(ParameterClientGrpc::Options options) {
  auto client = ParameterClientGrpc::Create(std::move(options));
  REQUIRE(client.ok());
  return *std::move(client);
}

// A server written with the generated code, whose answers a test chooses.
class ScriptedServer final : public v1::ParameterServer::Service {
 public:
  using PullAnswer = std::function<grpc::Status(int call, grpc::ServerWriter<v1::Chunk>*)>;
  using PushAnswer = std::function<grpc::Status(int call, const std::string& payload)>;
  PullAnswer on_pull;
  PushAnswer on_push;

  grpc::Status Pull(grpc::ServerContext*, const v1::PullRequest* request,
                    grpc::ServerWriter<v1::Chunk>* writer) override {
    return on_pull(++pulls_, writer);
  }
  grpc::Status Push(grpc::ServerContext*, grpc::ServerReader<v1::PushChunk>* reader,
                    v1::PushReply*) override {
    std::string payload;
    v1::PushChunk chunk;
    while (reader->Read(&chunk)) {
      if (chunk.has_header()) header = chunk.header();
      payload += chunk.payload();
    }
    return on_push(++pushes_, payload);
  }
  v1::PushHeader header;

 private:
  int pulls_ = 0;
  int pushes_ = 0;
};

struct Scripted {
  Scripted() {
    auto started = GrpcServer::Start({"127.0.0.1:0", {&server}});
    REQUIRE(started.ok());
    grpc = *std::move(started);
    client = Client(Options());
  }
  ParameterClientGrpc::Options Options() const {
    ParameterClientGrpc::Options options;
    options.servers = {grpc->address()};
    options.slices = {SlicesOf(shape, ShardId(0), 1)};
    options.layout_hash = 5;
    options.member = MemberId(1);
    return options;
  }
  v1::Chunk Chunk(float value, int count, bool header) const {
    v1::Chunk chunk;
    const std::vector<float> values(count, value);
    chunk.set_payload(std::string(reinterpret_cast<const char*>(values.data()), 4 * values.size()));
    if (header) {
      chunk.mutable_header()->set_version(17);
      chunk.mutable_header()->set_layout_hash(5);
    }
    return chunk;
  }
  const ModelShape shape = TestShape(4, 4);  // 20 entries
  ScriptedServer server;
  std::unique_ptr<GrpcServer> grpc;
  std::unique_ptr<ParameterClientGrpc> client;
};

}  // namespace tessera

#endif  // TESSERA_TESTS_WORKER_RPC_SCRIPTED_SERVER_H_
