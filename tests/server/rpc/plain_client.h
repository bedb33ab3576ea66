// The data plane as any protobuf client sees it: the generated stub with ordinary messages.
#ifndef TESSERA_TESTS_SERVER_RPC_PLAIN_CLIENT_H_
#define TESSERA_TESTS_SERVER_RPC_PLAIN_CLIENT_H_

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <grpcpp/create_channel.h>
#include <grpcpp/grpcpp.h>

#include "common/rpc/chunk.h"
#include "proto/parameter_server.grpc.pb.h"
#include "tests/server/rpc/running_servers.h"

namespace tessera {

struct PlainContext : grpc::ClientContext {
  PlainContext() { set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20)); }
};

struct Pulled {
  grpc::Status status;
  v1::ChunkHeader header;
  std::vector<size_t> chunks;
  std::string bytes;
};

class PlainClient {
 public:
  explicit PlainClient(RunningServers& servers)
      : layout_hash_(servers.layout_hash()), bytes_(servers.slices()[0].bytes()) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stub_ = v1::ParameterServer::NewStub(grpc::CreateCustomChannel(
        servers.addresses()[0], grpc::InsecureChannelCredentials(), arguments));
  }

  v1::ParameterServer::Stub& stub() { return *stub_; }

  static v1::Caller Caller(uint64_t member) {
    v1::Caller caller;
    caller.set_member(member);
    caller.set_job_digest(kDigest);
    caller.set_generation(3);
    return caller;
  }

  static v1::PullRequest Request(uint64_t member, uint64_t after, bool outside = false) {
    v1::PullRequest request;
    *request.mutable_caller() = Caller(member);
    request.mutable_keys()->mutable_dense();
    request.set_after_exchange(after);
    request.set_outside_exchange(outside);
    return request;
  }

  Pulled Pull(const v1::PullRequest& request) {
    PlainContext context;
    Pulled pulled;
    const auto reader = stub_->Pull(&context, request);
    v1::Chunk chunk;
    while (reader->Read(&chunk)) {
      CHECK(chunk.has_header() == pulled.chunks.empty());
      if (chunk.has_header()) pulled.header = chunk.header();
      pulled.chunks.push_back(chunk.payload().size());
      pulled.bytes += chunk.payload();
    }
    pulled.status = reader->Finish();
    return pulled;
  }
  Pulled Now() { return Pull(Request(1, 0, true)); }

  // A whole push of one value everywhere, in chunks of `chunk_bytes`.
  std::vector<v1::PushChunk> Chunks(uint64_t member, uint64_t exchange, float value,
                                    int64_t chunk_bytes = kChunkBytes) {
    std::vector<v1::PushChunk> chunks(1);
    v1::PushHeader* header = chunks[0].mutable_header();
    *header->mutable_caller() = Caller(member);
    header->mutable_keys()->mutable_dense();
    header->set_exchange(exchange);
    header->set_payload_bytes(bytes_);
    header->set_layout_hash(layout_hash_);
    std::string all(bytes_, '\0');
    for (int64_t i = 0; i < bytes_; i += 4) std::memcpy(&all[i], &value, 4);
    for (int64_t begin = 0; begin < bytes_; begin += chunk_bytes) {
      if (begin > 0) chunks.emplace_back();
      chunks.back().set_payload(all.substr(begin, chunk_bytes));
    }
    return chunks;
  }

  grpc::Status Push(const std::vector<v1::PushChunk>& chunks, v1::PushReply* reply = nullptr) {
    PlainContext context;
    v1::PushReply ignored;
    const auto writer = stub_->Push(&context, reply == nullptr ? &ignored : reply);
    for (const v1::PushChunk& chunk : chunks) {
      if (!writer->Write(chunk)) break;
    }
    writer->WritesDone();
    return writer->Finish();
  }

 private:
  const uint64_t layout_hash_;
  const int64_t bytes_;
  std::unique_ptr<v1::ParameterServer::Stub> stub_;
};

inline float At(const std::string& bytes, size_t i) {
  float x;
  std::memcpy(&x, &bytes[4 * i], 4);
  return x;
}

}  // namespace tessera

#endif  // TESSERA_TESTS_SERVER_RPC_PLAIN_CLIENT_H_
