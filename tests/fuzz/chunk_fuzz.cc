// Messages of the data plane, read in place: the reader against protobuf's own.
//
//   input = kind(1) cut(2) message
// What protobuf reads is read with the same fields and the same payload, wherever the slices end; what
// it refuses is refused, but for unknown groups and the limits of common/rpc/chunk.h.
#include <string>
#include <vector>

#include <google/protobuf/stubs/logging.h>
#include <grpcpp/support/byte_buffer.h>

#include "common/base/check.h"
#include "common/rpc/chunk.h"
#include "proto/parameter_server.pb.h"
#include "tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  google::protobuf::SetLogHandler(nullptr);
  return 0;
}

namespace tessera {
namespace {

grpc::ByteBuffer Sliced(absl::string_view bytes, size_t piece) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    const absl::string_view part = bytes.substr(at, piece);
    slices.emplace_back(part.data(), part.size());
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

std::string BytesOf(const Payload& payload) {
  std::string bytes;
  for (const Payload::Piece& piece : payload.pieces()) bytes.append(piece.data, piece.size);
  TESSERA_CHECK(static_cast<int64_t>(bytes.size()) == payload.size());
  return bytes;
}

template <typename Message>
void Compare(absl::string_view bytes, size_t piece) {
  Message head, whole, head_at_once;
  Payload payload, payload_at_once;
  const absl::Status status = ReadChunk(Sliced(bytes, piece), &head, &payload);
  const absl::Status at_once =
      ReadChunk(Sliced(bytes, bytes.size() + 1), &head_at_once, &payload_at_once);
  TESSERA_CHECK(status == at_once);
  const bool reads = whole.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  if (!status.ok()) {
    // Protobuf has its own ideas of groups in unknown fields, and no limit on the head.
    TESSERA_CHECK(!status.message().empty());
    return;
  }
  TESSERA_CHECK(BytesOf(payload) == BytesOf(payload_at_once));
  if (!reads) return;
  TESSERA_CHECK(BytesOf(payload) == whole.payload());
  whole.clear_payload();
  whole.DiscardUnknownFields();
  head.DiscardUnknownFields();
  TESSERA_CHECK(head.SerializeAsString() == whole.SerializeAsString());
  // And written again it is the same.
  const std::string kept = BytesOf(payload);
  const grpc::Slice slice(kept.data(), kept.size());
  Message head_again;
  Payload payload_again;
  TESSERA_CHECK(ReadChunk(WriteChunk(head, {slice}), &head_again, &payload_again).ok());
  TESSERA_CHECK(BytesOf(payload_again) == kept);
  TESSERA_CHECK(head_again.SerializeAsString() == head.SerializeAsString());
}

}  // namespace
}  // namespace tessera

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  FuzzInput input(data, size);
  const uint8_t kind = input.Byte();
  const size_t piece = 1 + input.Number(2);
  switch (kind % 3) {
    case 0:
      Compare<v1::PushChunk>(input.rest(), piece);
      break;
    case 1:
      Compare<v1::Chunk>(input.rest(), piece);
      break;
    case 2: {
      v1::PullRequest request;
      const absl::Status status = ReadMessage(Sliced(input.rest(), piece), &request);
      v1::PullRequest whole;
      TESSERA_CHECK(status.ok() == whole.ParseFromArray(input.rest().data(),
                                                        static_cast<int>(input.rest().size())));
      break;
    }
  }
  return 0;
}
