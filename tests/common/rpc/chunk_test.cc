#include "common/rpc/chunk.h"

#include <memory>
#include <random>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "common/rpc/borrowed_slice.h"
#include "common/rpc/status.h"
#include "proto/parameter_server.pb.h"

namespace tessera {
namespace {

// The bytes as one message, cut after each of `cuts` bytes.
grpc::ByteBuffer Message(const std::string& bytes, const std::vector<size_t>& cuts = {}) {
  std::vector<grpc::Slice> slices;
  size_t begin = 0;
  for (const size_t cut : cuts) {
    slices.emplace_back(bytes.substr(begin, cut - begin));
    begin = cut;
  }
  slices.emplace_back(bytes.substr(begin));
  return grpc::ByteBuffer(slices.data(), slices.size());
}

std::string Bytes(const grpc::ByteBuffer& message) {
  std::vector<grpc::Slice> slices;
  if (message.Valid()) message.Dump(&slices);
  std::string bytes;
  for (const grpc::Slice& s : slices) {
    bytes.append(reinterpret_cast<const char*>(s.begin()), s.size());
  }
  return bytes;
}

std::string Bytes(const Payload& payload) {
  std::string bytes;
  for (const Payload::Piece& piece : payload.pieces()) bytes.append(piece.data, piece.size);
  return bytes;
}

v1::PushChunk Example(size_t payload_bytes) {
  v1::PushChunk chunk;
  v1::PushHeader* header = chunk.mutable_header();
  header->mutable_caller()->set_member(300);
  header->mutable_caller()->set_job_digest(std::string(64, 'a'));
  header->mutable_keys()->mutable_dense();
  header->set_layout_hash(0x8000000000000001u);
  header->set_payload_bytes(payload_bytes);
  std::mt19937 random(7);
  for (size_t i = 0; i < payload_bytes; ++i) {
    chunk.mutable_payload()->push_back(static_cast<char>(random()));
  }
  return chunk;
}

// What both readers make of the same bytes: ours accepts only what protobuf accepts, and finds the
// same.
bool AgreesWithProtobuf(const std::string& bytes, const std::vector<size_t>& cuts = {}) {
  v1::PushChunk head;
  Payload payload;
  const absl::Status status = ReadChunk(Message(bytes, cuts), &head, &payload);
  v1::PushChunk whole;
  const bool parses = whole.ParseFromString(bytes);
  if (!status.ok()) {
    // Stricter in one point: protobuf drops bits of a tag beyond 32.
    return !parses || absl::StrContains(status.message(), "field number");
  }
  if (!parses || Bytes(payload) != whole.payload()) return false;
  whole.clear_payload();
  return head.SerializeAsString() == whole.SerializeAsString();
}

absl::Status Read(const std::string& bytes) {
  v1::PushChunk head;
  Payload payload;
  return ReadChunk(Message(bytes), &head, &payload);
}

TEST_CASE("a written chunk is the message that protobuf writes", "[rpc][chunk]") {
  for (const size_t size : {0, 1, 127, 128, 4096, 70000}) {
    v1::PushChunk chunk = Example(size);
    const std::string want = chunk.SerializeAsString();
    const std::string payload = chunk.payload();
    chunk.clear_payload();
    const size_t half = size / 2;
    const std::vector<grpc::Slice> pieces = {grpc::Slice(payload.substr(0, half)),
                                             grpc::Slice(payload.substr(half))};
    CHECK(Bytes(WriteChunk(chunk, pieces)) == want);
  }
}

TEST_CASE("a written chunk sends the caller's memory and gives it back", "[rpc][chunk]") {
  const std::string memory(5000, 'x');
  auto owner = std::make_shared<int>(0);
  {
    const grpc::Slice piece = BorrowSlice(memory.data(), memory.size(), owner);
    const grpc::ByteBuffer message = WriteChunk(v1::Chunk(), {piece});
    std::vector<grpc::Slice> slices;
    message.Dump(&slices);
    REQUIRE(slices.size() == 2);
    CHECK(static_cast<const void*>(slices[1].begin()) == memory.data());
    CHECK(owner.use_count() == 2);
  }
  CHECK(owner.use_count() == 1);
}

TEST_CASE("a read payload is the received memory and keeps it alive", "[rpc][chunk]") {
  auto owner = std::make_shared<int>(0);
  const std::string bytes = Example(5000).SerializeAsString();
  Payload payload;
  {
    const grpc::Slice slice = BorrowSlice(bytes.data(), bytes.size(), owner);
    const grpc::ByteBuffer message(&slice, 1);
    v1::PushChunk head;
    REQUIRE(ReadChunk(message, &head, &payload).ok());
    CHECK(head.header().caller().member() == 300);
    CHECK(head.payload().empty());
  }
  REQUIRE(payload.pieces().size() == 1);
  CHECK(payload.pieces()[0].data == bytes.data() + bytes.size() - 5000);
  CHECK(owner.use_count() == 2);
  payload = Payload();
  CHECK(owner.use_count() == 1);
}

TEST_CASE("short slices keep their bytes while the payload lives", "[rpc][chunk]") {
  const v1::PushChunk chunk = Example(100);
  const std::string bytes = chunk.SerializeAsString();
  std::vector<size_t> cuts;
  for (size_t i = 1; i < bytes.size(); i += 5) cuts.push_back(i);
  Payload payload;
  v1::PushChunk head;
  REQUIRE(ReadChunk(Message(bytes, cuts), &head, &payload).ok());
  CHECK(Bytes(payload) == chunk.payload());
}

TEST_CASE("every border between slices gives the same chunk", "[rpc][chunk]") {
  const std::string bytes = Example(300).SerializeAsString();
  for (size_t cut = 0; cut <= bytes.size(); ++cut) CHECK(AgreesWithProtobuf(bytes, {cut}));
}

TEST_CASE("a chunk that is cut off anywhere is refused or ends at a field", "[rpc][chunk]") {
  const std::string bytes = Example(300).SerializeAsString();
  int refused = 0;
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::string part = bytes.substr(0, size);
    CHECK(AgreesWithProtobuf(part));
    refused += !Read(part).ok();
  }
  // Whole are only the empty message and the one that ends before the payload.
  CHECK(refused == static_cast<int>(bytes.size()) - 2);
}

TEST_CASE("fields come in any order and unknown ones are passed over", "[rpc][chunk]") {
  v1::PushChunk head = Example(0);
  const std::string header = head.SerializeAsString();
  const std::string payload = std::string("\x7a\x04", 2) + "abcd";
  CHECK(AgreesWithProtobuf(payload + header));
  CHECK(AgreesWithProtobuf(payload));
  CHECK(AgreesWithProtobuf(header + header));
  // A number, fixed 64, fixed 32, bytes, and a group that has a field 15 of its own.
  const std::string unknown = std::string("\x10\x96\x01", 3) +
                              std::string("\x19\1\2\3\4\5\6\7\x08", 9) +
                              std::string("\x25\1\2\3\4", 5) + std::string("\x2a\2hi", 4) +
                              std::string("\x33\x7a\1z\x34", 5);
  CHECK(AgreesWithProtobuf(unknown + payload + unknown + header));
  REQUIRE(Read(unknown + payload + header).ok());
  // Field 15 as a number is an unknown field.
  CHECK(AgreesWithProtobuf(std::string("\x78\x05", 2) + payload));
}

TEST_CASE("of several payload fields the last one counts", "[rpc][chunk]") {
  const std::string bytes = std::string("\x7a\x02", 2) + "no" + std::string("\x7a\x03", 2) + "yes";
  v1::PushChunk head;
  Payload payload;
  REQUIRE(ReadChunk(Message(bytes), &head, &payload).ok());
  CHECK(Bytes(payload) == "yes");
  CHECK(AgreesWithProtobuf(bytes));
  CHECK(AgreesWithProtobuf(bytes + std::string("\x7a\0", 2)));
}

TEST_CASE("malformed chunks are refused with the byte and the reason", "[rpc][chunk]") {
  const auto message = [](const std::string& bytes) { return std::string(Read(bytes).message()); };
  CHECK(message(std::string("\x7a", 1)) == "message: a length at byte 1 is cut off after 0 bytes");
  CHECK(message(std::string("\x7a\x05", 2) + "abc") ==
        "message: field 15 at byte 1 is 5 bytes long, want at most the 3 that are left");
  CHECK(message(std::string(6, '\x80')) ==
        "message: a field's tag at byte 0 is longer than 5 bytes");
  CHECK(message(std::string("\x10") + std::string(11, '\xff')) ==
        "message: a number at byte 1 is longer than 10 bytes");
  CHECK(message(std::string("\0\0", 2)) ==
        "message: field number at byte 0 is 0, want 1 to 536870911");
  CHECK(message("\x19"
                "abc") == "message: field 3 at byte 1 is cut off after 3 of 8 bytes");
  CHECK(message("\x16") == "message: wire type of field 2 at byte 0 is 6, want 0 to 5");
  CHECK(message("\x33") == "message: group 6 does not end");
  CHECK(message("\x34") == "message: the end of group 6 at byte 0 has no beginning");
  CHECK(message("\x33\x3c") == "message: the end of group 7 at byte 1 has no beginning");
  CHECK(message(std::string(100, '\x33')) ==
        "message: groups are nested deeper than 64 at byte 64");
  CHECK(message(std::string("\x0a\x01\xff", 3)) ==
        "message: fields beside the payload are no tessera.v1.PushChunk");
}

TEST_CASE("messages beyond the limits are refused", "[rpc][chunk]") {
  CHECK(Read(Example(kChunkBytesMax).SerializeAsString()).ok());
  const absl::Status large = Read(std::string(kMessageBytesMax + 1, '\0'));
  CHECK(large.code() == absl::StatusCode::kInvalidArgument);
  CHECK(large.message() == "message: is 4259857 bytes, want at most 4259856");
  v1::PushChunk head;
  head.mutable_header()->mutable_caller()->set_job_digest(std::string(kHeadBytesMax, 'a'));
  CHECK(Read(head.SerializeAsString()).message() ==
        "message: fields beside the payload take more than 65536 bytes");
}

TEST_CASE("mutated chunks are read as protobuf reads them", "[rpc][chunk][fuzz]") {
  const std::string original = Example(40).SerializeAsString();
  int accepted = 0;
  for (uint32_t seed = 0; seed < 60000; ++seed) {
    std::mt19937 random(seed);
    std::string bytes = original;
    if (seed % 4 == 0) {
      bytes.clear();
      for (int i = random() % 24; i > 0; --i) bytes.push_back(static_cast<char>(random()));
    }
    for (int i = random() % 4; i > 0 && !bytes.empty(); --i) {
      const size_t at = random() % bytes.size();
      switch (random() % 4) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes.erase(at, random() % 8);
          break;
        case 2:
          bytes.insert(at, bytes.substr(random() % bytes.size(), random() % 60));
          break;
        default:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
          break;
      }
    }
    std::vector<size_t> cuts;
    for (size_t at = 0; bytes.size() > 0 && at < bytes.size(); at += random() % 30) {
      cuts.push_back(at);
    }
    if (!AgreesWithProtobuf(bytes, cuts)) FAIL("seed " << seed);
    accepted += Read(bytes).ok();
  }
  // Both outcomes are exercised.
  CHECK(accepted > 10000);
  CHECK(accepted < 50000);
}

TEST_CASE("messages without payload are read and written whole", "[rpc][chunk]") {
  v1::PullRequest request;
  request.mutable_caller()->set_member(5);
  request.set_after_exchange(9);
  v1::PullRequest back;
  REQUIRE(ReadMessage(WriteMessage(request), &back).ok());
  CHECK(back.SerializeAsString() == request.SerializeAsString());
  CHECK(ReadMessage(Message("\x0a\x05x"), &back).message() ==
        "message: is no tessera.v1.PullRequest");
  CHECK(ReadMessage(grpc::ByteBuffer(), &back).ok());
}

TEST_CASE("status codes and texts survive the way there and back", "[rpc][status]") {
  for (int code = 0; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), code == 0 ? "" : "text");
    CHECK(static_cast<int>(ToGrpc(status).error_code()) == code);
    CHECK(FromGrpc(ToGrpc(status)) == status);
  }
  CHECK(FromGrpc(grpc::Status(static_cast<grpc::StatusCode>(29), "odd")) ==
        absl::UnknownError("odd"));
}

}  // namespace
}  // namespace tessera
