#include <sys/socket.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/base/steady_clock.h"
#include "common/consistency/barrier.h"
#include "common/consistency/none.h"
#include "common/rpc/chunk.h"
#include "common/rpc/shared_memory/local_packet.h"
#include "common/rpc/shared_memory/shared_arena.h"
#include "server/rpc/local_calls.h"
#include "tests/server/rpc/linked_member.h"
#include "tests/server/rpc/running_servers.h"

namespace tessera {
namespace {

template <typename Condition>
bool Eventually(Condition condition) {
  const absl::Time end = SteadyNow() + absl::Seconds(20);
  while (!condition()) {
    if (SteadyNow() > end) return false;
    absl::SleepFor(absl::Milliseconds(1));
  }
  return true;
}

std::unique_ptr<ConsistencyPolicy> None() { return MakeNone(1); }

// A server with two members, of which the first has a link.
struct Site {
  explicit Site(const std::function<std::unique_ptr<ConsistencyPolicy>()>& policy = None,
                int rows = 37)
      : servers(TestShape(rows, 101), 1, policy, 2) {
    REQUIRE(servers[0].service->ShareMemory().ok());
    member = std::make_unique<LinkedMember>(servers, 1);
  }

  v1::PullRequest Request(uint64_t after, bool outside) const {
    v1::PullRequest request = PlainClient::Request(1, after, outside);
    request.mutable_caller()->set_link(member->link->number());
    return request;
  }
  grpc::ByteBuffer Push(uint64_t exchange, float value) {
    std::vector<v1::PushChunk> chunks = member->client.Chunks(1, exchange, value);
    REQUIRE(chunks.size() == 1);
    chunks[0].mutable_header()->mutable_caller()->set_link(member->link->number());
    return WriteMessage(chunks[0]);
  }
  absl::Status Send(uint32_t call, PacketKind kind, const grpc::ByteBuffer& body) {
    return SendPacket(member->link->connection(), call, kind, body);
  }
  // The next packet; nullopt: the server has ended the link.
  std::optional<LocalPacket> Receive() {
    std::optional<LocalPacket> packet;
    bool has_ended = false;
    CHECK(Eventually([&] {
      auto next = reader.Next(member->link->connection());
      has_ended = !next.ok();
      if (next.ok()) packet = *std::move(next);
      return has_ended || packet.has_value();
    }));
    return packet;
  }
  // The code of the next packet, which ends a call.
  absl::StatusCode Ended(uint32_t call, std::string* text = nullptr) {
    const std::optional<LocalPacket> packet = Receive();
    REQUIRE(packet.has_value());
    CHECK(packet->call == call);
    CHECK(packet->kind == PacketKind::kEnd);
    if (text != nullptr) {
      std::vector<grpc::Slice> slices;
      REQUIRE(packet->body.Dump(&slices).ok());
      for (const grpc::Slice& slice : slices) text->append(slice.begin(), slice.end());
    }
    return packet->code;
  }
  uint64_t parked() {
    uint64_t count = 0;
    absl::Notification told;
    servers[0].thread->Inspect(false, [&](const ShardThread::View& view) {
      count = view.parked_reads;
      told.Notify();
    });
    told.WaitForNotification();
    return count;
  }

  RunningServers servers;
  std::unique_ptr<LinkedMember> member;
  PacketReader reader;
};

TEST_CASE("pushes and pulls by packets are those over gRPC", "[rpc][memory]") {
  REQUIRE(SharedArena::Enable().ok());
  Site site;
  const std::string before = site.member->client.Now().bytes;
  REQUIRE(site.Send(1, PacketKind::kPush, site.Push(1, 2.0f)).ok());
  std::optional<LocalPacket> packet = site.Receive();
  REQUIRE(packet.has_value());
  CHECK(packet->call == 1);
  CHECK(packet->kind == PacketKind::kLast);
  v1::PushReply reply;
  REQUIRE(ReadMessage(packet->body, &reply).ok());
  CHECK_FALSE(reply.duplicate());
  const std::string after = site.member->client.Now().bytes;
  CHECK(At(after, 0) == At(before, 0) + 2.0f);
  // A number may be used again once its call has ended, and a push that is repeated counts once.
  REQUIRE(site.Send(1, PacketKind::kPush, site.Push(1, 2.0f)).ok());
  packet = site.Receive();
  REQUIRE(packet.has_value());
  REQUIRE(ReadMessage(packet->body, &reply).ok());
  CHECK(reply.duplicate());

  REQUIRE(site.Send(9, PacketKind::kPull, WriteMessage(site.Request(1, false))).ok());
  packet = site.Receive();
  REQUIRE(packet.has_value());
  CHECK(packet->call == 9);
  CHECK(packet->kind == PacketKind::kLast);
  v1::Chunk head;
  Payload payload;
  REQUIRE(ReadChunk(packet->body, &head, &payload).ok());
  CHECK(head.header().version() == 1);
  std::string bytes;
  for (const Payload::Piece& piece : payload.pieces()) bytes.append(piece.data, piece.size);
  CHECK(bytes == after);
}

TEST_CASE("a member speaks by its own link for itself", "[rpc][memory]") {
  REQUIRE(SharedArena::Enable().ok());
  Site site;
  const std::string before = site.member->client.Now().bytes;
  std::string text;
  v1::PullRequest request = site.Request(0, true);
  request.mutable_caller()->set_member(2);
  REQUIRE(site.Send(1, PacketKind::kPull, WriteMessage(request)).ok());
  CHECK(site.Ended(1, &text) == absl::StatusCode::kPermissionDenied);
  CHECK(absl::StrContains(text, "by the link of member 1"));
  request = site.Request(0, true);
  request.mutable_caller()->clear_link();
  REQUIRE(site.Send(2, PacketKind::kPull, WriteMessage(request)).ok());
  CHECK(site.Ended(2) == absl::StatusCode::kPermissionDenied);
  // A copy of a replica is for servers, which come over gRPC.
  request = site.Request(0, true);
  request.mutable_caller()->set_member(0);
  request.set_copies_replica(true);
  REQUIRE(site.Send(3, PacketKind::kPull, WriteMessage(request)).ok());
  CHECK(site.Ended(3) == absl::StatusCode::kPermissionDenied);
  std::vector<v1::PushChunk> chunks = site.member->client.Chunks(2, 1, 3.0f);
  chunks[0].mutable_header()->mutable_caller()->set_link(site.member->link->number());
  REQUIRE(site.Send(4, PacketKind::kPush, WriteMessage(chunks[0])).ok());
  CHECK(site.Ended(4) == absl::StatusCode::kPermissionDenied);
  CHECK(site.member->client.Now().bytes == before);
}

TEST_CASE("wrong calls by packets end with the reason, and the link stays", "[rpc][memory]") {
  REQUIRE(SharedArena::Enable().ok());
  Site site;
  const std::string before = site.member->client.Now().bytes;
  const grpc::Slice noise("no message");
  const grpc::ByteBuffer garbage(&noise, 1);
  for (const PacketKind kind : {PacketKind::kPull, PacketKind::kFetch, PacketKind::kPush}) {
    REQUIRE(site.Send(1, kind, garbage).ok());
    CHECK(site.Ended(1) == absl::StatusCode::kInvalidArgument);
    REQUIRE(site.Send(2, kind, grpc::ByteBuffer()).ok());
    CHECK(site.Ended(2) == absl::StatusCode::kInvalidArgument);
  }
  // A push that has not all of its bytes, as nothing comes behind a packet.
  std::vector<v1::PushChunk> chunks = site.member->client.Chunks(1, 1, 3.0f);
  chunks[0].mutable_header()->mutable_caller()->set_link(site.member->link->number());
  chunks[0].mutable_payload()->resize(chunks[0].payload().size() - 4);
  REQUIRE(site.Send(3, PacketKind::kPush, WriteMessage(chunks[0])).ok());
  std::string text;
  CHECK(site.Ended(3, &text) == absl::StatusCode::kInvalidArgument);
  CHECK(absl::StrContains(text, "payload ended after"));
  CHECK(site.member->client.Now().bytes == before);
  // Nobody knows this call.
  REQUIRE(site.Send(77, PacketKind::kCancel, grpc::ByteBuffer()).ok());
  REQUIRE(site.Send(4, PacketKind::kPull, WriteMessage(site.Request(0, true))).ok());
  const std::optional<LocalPacket> packet = site.Receive();
  REQUIRE(packet.has_value());
  CHECK(packet->kind == PacketKind::kLast);
}

TEST_CASE("a waiting pull ends with its cancellation, its link, or the server", "[rpc][memory]") {
  REQUIRE(SharedArena::Enable().ok());
  Site site(MakeBarrier);
  REQUIRE(site.Send(1, PacketKind::kPush, site.Push(1, 2.0f)).ok());
  REQUIRE(site.Receive().has_value());
  const auto begin = [&](uint32_t call) {
    REQUIRE(site.Send(call, PacketKind::kPull, WriteMessage(site.Request(1, false))).ok());
  };
  // The other member has not pushed.
  begin(5);
  begin(6);
  CHECK(Eventually([&] { return site.parked() == 2; }));
  REQUIRE(site.Send(5, PacketKind::kCancel, grpc::ByteBuffer()).ok());
  CHECK(site.Ended(5) == absl::StatusCode::kCancelled);
  CHECK(site.parked() == 1);
  SECTION("its link") {
    site.member.reset();
    CHECK(Eventually([&] { return site.parked() == 0; }));
    CHECK(Eventually([&] { return site.servers[0].service->memory_members().empty(); }));
  }
  SECTION("the server") {
    site.servers[0].service->EndLocalCalls();
    CHECK(site.parked() == 0);
    // The link's end says it all.
    CHECK_FALSE(site.Receive().has_value());
    // Nobody answers any more.
    CHECK(Eventually([&] {
      return !site.Send(7, PacketKind::kPull, WriteMessage(site.Request(1, false))).ok() ||
             site.servers[0].service->memory_members().empty();
    }));
    site.servers[0].service->EndLocalCalls();
  }
  SECTION("it is answered") {
    PlainClient other(site.servers);
    CHECK(other.Push(other.Chunks(2, 1, 4.0f)).ok());
    const std::optional<LocalPacket> packet = site.Receive();
    REQUIRE(packet.has_value());
    CHECK(packet->call == 6);
    CHECK(packet->kind == PacketKind::kLast);
  }
}

TEST_CASE("who breaks the rules of packets loses its link, and nobody else anything",
          "[rpc][memory]") {
  REQUIRE(SharedArena::Enable().ok());
  Site site(MakeBarrier);
  const grpc::ByteBuffer waits = WriteMessage(site.Request(1, false));
  REQUIRE(site.Send(1, PacketKind::kPush, site.Push(1, 2.0f)).ok());
  REQUIRE(site.Receive().has_value());
  const int connection = site.member->link->connection();
  SECTION("a server's packet") {
    REQUIRE(site.Send(2, PacketKind::kLast, grpc::ByteBuffer()).ok());
  }
  SECTION("a kind that there is not") {
    const char bytes[8] = {1, 0, 0, 0, 99, 0, 0, 0};
    REQUIRE(send(connection, bytes, sizeof bytes, 0) == sizeof bytes);
  }
  SECTION("a packet without a head") { REQUIRE(send(connection, "abc", 3, 0) == 3); }
  SECTION("a packet that is too long") {
    const std::string bytes(static_cast<size_t>(kPacketBytesMax) + 4096, '\1');
    REQUIRE(send(connection, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  }
  SECTION("a number that is in use") {
    REQUIRE(site.Send(3, PacketKind::kPull, waits).ok());
    REQUIRE(site.Send(3, PacketKind::kPull, waits).ok());
  }
  SECTION("too many calls") {
    for (uint32_t call = 10; call <= 10 + LocalCalls::kCallsPerLinkMax; ++call) {
      REQUIRE(site.Send(call, PacketKind::kPull, waits).ok());
    }
  }
  SECTION("answers that nobody reads") {
    // By the buffers of the link first, then in packets, until the system takes no more.
    const grpc::ByteBuffer now = WriteMessage(site.Request(0, true));
    uint32_t call = 4;
    CHECK(Eventually([&] {
      return !site.Send(call++, PacketKind::kPull, now).ok() ||
             site.servers[0].service->memory_members().empty();
    }));
  }
  // What was answered before may still be read.
  int packets = 0;
  while (site.Receive().has_value()) ++packets;
  CHECK(packets < 100);
  CHECK(Eventually([&] { return site.servers[0].service->memory_members().empty(); }));
  CHECK(site.parked() == 0);
  LinkedMember again(site.servers, 1);
  PlainClient other(site.servers);
  CHECK(other.Push(other.Chunks(2, 1, 4.0f)).ok());
  CHECK(again.client.Now().status.ok());
}

}  // namespace
}  // namespace tessera
