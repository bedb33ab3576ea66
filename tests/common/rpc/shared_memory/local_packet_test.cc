#include "common/rpc/shared_memory/local_packet.h"

#include <sys/socket.h>

#include <optional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <grpcpp/support/slice.h>

#include "absl/strings/match.h"
#include "common/rpc/shared_memory/owned_descriptor.h"

namespace tessera {
namespace {

struct Ends {
  Ends() {
    int made[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, made) == 0);
    one.Reset(made[0]);
    other.Reset(made[1]);
  }
  OwnedDescriptor one;
  OwnedDescriptor other;
};

std::string Text(const grpc::ByteBuffer& buffer) {
  std::string text;
  std::vector<grpc::Slice> slices;
  REQUIRE(buffer.Dump(&slices).ok());
  for (const grpc::Slice& slice : slices) text.append(slice.begin(), slice.end());
  return text;
}

grpc::ByteBuffer Pieces(const std::vector<std::string>& texts) {
  std::vector<grpc::Slice> slices;
  for (const std::string& text : texts) slices.emplace_back(text);
  return grpc::ByteBuffer(slices.data(), slices.size());
}

TEST_CASE("packets come as they were sent, one by one", "[shared_memory]") {
  Ends ends;
  PacketReader reader;
  CHECK(*reader.Next(ends.other.get()) == std::nullopt);
  CHECK(SendPacket(ends.one.get(), 7, PacketKind::kPush, Pieces({"ab", "", "cde"})).ok());
  CHECK(SendPacket(ends.one.get(), 8, PacketKind::kCancel, grpc::ByteBuffer()).ok());
  CHECK(SendEnd(ends.one.get(), 9, absl::AbortedError("why")).ok());
  auto packet = reader.Next(ends.other.get());
  REQUIRE(packet.ok());
  REQUIRE(packet->has_value());
  CHECK((*packet)->call == 7);
  CHECK((*packet)->kind == PacketKind::kPush);
  CHECK(Text((*packet)->body) == "abcde");
  packet = reader.Next(ends.other.get());
  CHECK((*packet)->call == 8);
  CHECK((*packet)->kind == PacketKind::kCancel);
  packet = reader.Next(ends.other.get());
  CHECK((*packet)->call == 9);
  CHECK((*packet)->code == absl::StatusCode::kAborted);
  CHECK(Text((*packet)->body) == "why");
  CHECK(*reader.Next(ends.other.get()) == std::nullopt);
  // What was sent before the end is read before it.
  CHECK(SendPacket(ends.one.get(), 10, PacketKind::kLast, Pieces({"x"})).ok());
  ends.one.Reset(-1);
  CHECK((*reader.Next(ends.other.get()))->call == 10);
  CHECK(absl::IsUnavailable(reader.Next(ends.other.get()).status()));
  CHECK(
      absl::IsUnavailable(SendPacket(ends.other.get(), 11, PacketKind::kPull, grpc::ByteBuffer())));
}

TEST_CASE("the largest packet has room, and a larger one is refused by both ends",
          "[shared_memory]") {
  Ends ends;
  PacketReader reader;
  const std::string largest(static_cast<size_t>(kPacketBytesMax) - 8, 'x');
  CHECK(SendPacket(ends.one.get(), 1, PacketKind::kPush, Pieces({largest})).ok());
  const auto packet = reader.Next(ends.other.get());
  REQUIRE(packet.ok());
  CHECK(Text((*packet)->body) == largest);
  CHECK(absl::IsResourceExhausted(
      SendPacket(ends.one.get(), 1, PacketKind::kPush, Pieces({largest, "y"}))));
  const std::string raw(static_cast<size_t>(kPacketBytesMax) + 9, '\1');
  REQUIRE(send(ends.one.get(), raw.data(), raw.size(), 0) == static_cast<ssize_t>(raw.size()));
  CHECK(absl::IsInvalidArgument(reader.Next(ends.other.get()).status()));
  CHECK(*reader.Next(ends.other.get()) == std::nullopt);
}

TEST_CASE("who does not read is not waited for", "[shared_memory]") {
  Ends ends;
  const std::string large(100000, 'x');
  absl::Status status;
  int sent = 0;
  for (; status.ok() && sent < 1000; ++sent) {
    status = SendPacket(ends.one.get(), 1, PacketKind::kMessage, Pieces({large}));
  }
  CHECK(absl::IsResourceExhausted(status));
  CHECK(absl::StrContains(status.message(), "the peer does not read"));
  // Two of the largest find room whatever the system's default is.
  CHECK(sent > 2);
}

TEST_CASE("an error's text is cut to what a packet has", "[shared_memory]") {
  Ends ends;
  PacketReader reader;
  CHECK(SendEnd(ends.one.get(), 1, absl::InternalError(std::string(1 << 20, 'e'))).ok());
  const auto packet = reader.Next(ends.other.get());
  REQUIRE(packet.ok());
  CHECK(Text((*packet)->body) == std::string(4096, 'e'));
}

}  // namespace
}  // namespace tessera
