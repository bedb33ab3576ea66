// A member with a link that is its own to misuse.
#ifndef TESSERA_TESTS_SERVER_RPC_LINKED_MEMBER_H_
#define TESSERA_TESTS_SERVER_RPC_LINKED_MEMBER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include <catch2/catch.hpp>
#include <grpcpp/support/slice.h>

#include "absl/time/time.h"
#include "common/base/steady_clock.h"
#include "common/rpc/shared_memory/memory_hello.h"
#include "common/rpc/shared_memory/memory_link.h"
#include "common/rpc/shared_memory/shared_arena.h"
#include "proto/parameter_server.pb.h"
#include "tests/server/rpc/plain_client.h"

namespace tessera {

// The process has an arena.
struct LinkedMember {
  LinkedMember(RunningServers& servers, uint64_t member) : client(servers) {
    PlainContext context;
    v1::ShareMemoryRequest request;
    *request.mutable_caller() = PlainClient::Caller(member);
    request.set_machine(SteadyClockName());
    v1::ShareMemoryReply reply;
    REQUIRE(client.stub().ShareMemory(&context, request, &reply).ok());
    link =
        *ConnectMemory(reply.socket(), reply.link(), SharedArena::OfProcess(), absl::Seconds(10));
  }
  // The first chunk of a push, with its values in the link's memory.
  std::vector<v1::PushChunk> Shared(uint64_t member, uint64_t exchange, float value) {
    std::vector<v1::PushChunk> chunks = client.Chunks(member, exchange, value);
    for (v1::PushChunk& chunk : chunks) {
      *chunk.mutable_shared() = *link->Stage({grpc::Slice(chunk.payload())});
      chunk.clear_payload();
    }
    chunks[0].mutable_header()->mutable_caller()->set_link(link->number());
    return chunks;
  }

  PlainClient client;
  std::shared_ptr<MemoryLink> link;
};

}  // namespace tessera

#endif  // TESSERA_TESTS_SERVER_RPC_LINKED_MEMBER_H_
