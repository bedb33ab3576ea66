// Halves of the layers as any protobuf client pushes and pulls them.
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "common/consistency/barrier.h"
#include "tests/common/codec/all_codecs.h"
#include "tests/server/rpc/plain_client.h"
#include "tests/server/rpc/running_servers.h"

namespace tessera {
namespace {

// A matrix in front of the cut, its biases behind.
LayerCut Cut() {
  LayerCut cut;
  cut.layer = 1;
  cut.parameter = 1;
  cut.layers = 2;
  cut.parameters = 2;
  return cut;
}

std::unique_ptr<RunningServers> Servers(const ModelShape& shape, int members,
                                        const CodecChoice& codecs = {}) {
  return std::make_unique<RunningServers>(shape, 1, MakeBarrier, members, std::nullopt, false,
                                          codecs, std::nullopt, Cut());
}

v1::PullRequest Layers(uint64_t member, uint64_t after, uint32_t begin, uint32_t end,
                       bool outside = false) {
  v1::PullRequest request = PlainClient::Request(member, after, outside);
  request.mutable_keys()->mutable_layers()->set_parameter_begin(begin);
  request.mutable_keys()->mutable_layers()->set_parameter_end(end);
  return request;
}

// `bytes` of one value, as a push of parameters [begin, end).
std::vector<v1::PushChunk> Push(PlainClient& client, uint64_t member, uint64_t exchange,
                                uint32_t begin, uint32_t end, int64_t bytes, float value) {
  std::vector<v1::PushChunk> chunks = client.Chunks(member, exchange, value, int64_t{1} << 30);
  v1::PushHeader& header = *chunks[0].mutable_header();
  header.mutable_keys()->mutable_layers()->set_parameter_begin(begin);
  header.mutable_keys()->mutable_layers()->set_parameter_end(end);
  header.set_payload_bytes(bytes);
  chunks[0].mutable_payload()->resize(bytes);
  return chunks;
}

TEST_CASE("halves are pulled as the dense order has them, and pushed by members of their own",
          "[rpc][service][layers]") {
  // The matrix is several blocks, and its last one is a short one.
  const ModelShape shape = TestShape(700, 1201);
  const auto servers = Servers(shape, 3);
  PlainClient client(*servers);
  const int64_t front = 4 * shape.parameters[0].size(), back = 4 * shape.parameters[1].size();
  const std::string all = client.Now().bytes;
  CHECK(client.Pull(Layers(1, 0, 0, 1)).bytes == all.substr(0, front));
  CHECK(client.Pull(Layers(1, 0, 1, 2)).bytes == all.substr(front));
  CHECK(client.Pull(Layers(1, 0, 1, 2, /*outside=*/true)).bytes == all.substr(front));
  const Pulled nothing = client.Pull(Layers(1, 0, 1, 1));
  CHECK(nothing.status.ok());
  CHECK(nothing.bytes.empty());
  CHECK(nothing.header.layout_hash() == servers->layout_hash());

  REQUIRE(client.Push(Push(client, 1, 1, 0, 1, front, 2.0f)).ok());
  REQUIRE(client.Push(Push(client, 2, 1, 2, 2, 0, 0.0f)).ok());
  std::vector<v1::PushChunk> last = Push(client, 3, 1, 1, 2, back, 6.0f);
  last[0].mutable_header()->set_summed(3);
  REQUIRE(client.Push(last).ok());
  const Pulled after_front = client.Pull(Layers(1, 1, 0, 1));
  const Pulled after_back = client.Pull(Layers(3, 1, 1, 2));
  CHECK(after_front.header.version() == 1);
  for (int64_t i = 0; i < front / 4; i += 97) {
    REQUIRE(At(after_front.bytes, i) == At(all, i) + 2.0f);
  }
  for (int64_t i = 0; i < back / 4; ++i) REQUIRE(At(after_back.bytes, i) == 2.5f);
  // Evaluations are of all of it, and of rows.
  const std::string now = client.Now().bytes;
  CHECK(now == after_front.bytes + after_back.bytes);
  v1::PullRequest rows = PlainClient::Request(1, 1, true);
  rows.mutable_keys()->mutable_rows()->set_parameter(1);
  rows.mutable_keys()->mutable_rows()->set_row_end(5);
  CHECK(client.Pull(rows).bytes == now.substr(front, 20));
  CHECK(client.Pull(PlainClient::Request(2, 1)).bytes == now);
}

TEST_CASE("a pull of a half waits for the pushes of its exchange", "[rpc][service][layers]") {
  const ModelShape shape = TestShape(3, 2);
  const auto servers = Servers(shape, 2);
  PlainClient client(*servers);
  REQUIRE(client.Push(Push(client, 1, 1, 0, 1, 24, 1.0f)).ok());
  PlainContext context;
  const auto reader = client.stub().Pull(&context, Layers(1, 1, 0, 1));
  PlainClient other(*servers);
  REQUIRE(other.Push(Push(other, 2, 1, 1, 2, 12, 1.0f)).ok());
  v1::Chunk chunk;
  REQUIRE(reader->Read(&chunk));
  CHECK(chunk.header().version() == 1);
  CHECK(chunk.payload().size() == 24);
}

TEST_CASE("keys and sums that a cut model's servers do not take are refused by what is wanted",
          "[rpc][service][layers]") {
  const ModelShape shape = TestShape(3, 2);
  const auto servers = Servers(shape, 2);
  PlainClient client(*servers);
  const auto refusal = [&](const grpc::Status& status) {
    CHECK(status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
    return status.error_message();
  };
  const std::string push = "push from member 1 exchange 1: ";
  CHECK(refusal(client.Push(client.Chunks(1, 1, 1.0f))) ==
        push + "keys are dense, want some layers'; the job's methods differ");
  std::vector<v1::PushChunk> chunks = client.Chunks(1, 1, 1.0f);
  chunks[0].mutable_header()->clear_keys();
  CHECK(refusal(client.Push(chunks)) ==
        push + "keys are absent or unknown, want some layers'; the job's methods differ");
  CHECK(refusal(client.Push(Push(client, 1, 1, 0, 2, 36, 1.0f))) ==
        push +
            "layers are parameters 0 to 2, want 0 to 1, 1 to 2 or none; the job's methods differ");
  CHECK(refusal(client.Push(Push(client, 1, 1, 2, 1, 36, 1.0f))) ==
        push + "layers are parameters 2 to 1, want a range below 1073741824");
  CHECK(refusal(client.Push(Push(client, 1, 1, ~uint32_t{0}, ~uint32_t{0}, 0, 1.0f))) ==
        push + "layers are parameters 4294967295 to 4294967295, want a range below 1073741824");
  CHECK(refusal(client.Push(Push(client, 1, 1, 0, 1, 36, 1.0f))) ==
        push +
            "payload is 36 bytes, want 24 (6 entries as f32); layouts differ, compare layout_hash "
            "in status");
  CHECK(refusal(client.Push(Push(client, 1, 1, 0, 0, 24, 1.0f))) ==
        push +
            "payload is 24 bytes, want 0 (0 entries as f32); layouts differ, compare layout_hash "
            "in status");
  chunks = Push(client, 1, 1, 0, 1, 24, 1.0f);
  chunks[0].mutable_header()->set_summed(65536);
  CHECK(refusal(client.Push(chunks)) == push + "summed is 65536, want 1 to 65535");
  const float infinite = std::numeric_limits<float>::infinity();
  chunks = Push(client, 1, 1, 1, 2, 12, 1.0f);
  std::memcpy(&(*chunks[0].mutable_payload())[8], &infinite, 4);
  CHECK(refusal(client.Push(chunks)) ==
        push + DescribeEntry(shape, servers->slices()[0], 8) +
            " is not finite; the training diverged, try a lower learning rate");

  const std::string pull = "pull from member 1 after exchange 0: ";
  CHECK(refusal(client.Pull(Layers(1, 0, 0, 2)).status) ==
        pull +
            "layers are parameters 0 to 2, want 0 to 1, 1 to 2 or none; the job's methods differ");
  CHECK(refusal(client.Pull(Layers(1, 0, 1, 0)).status) ==
        pull + "layers are parameters 1 to 0, want a range below 1073741824");
  v1::PullRequest none = Layers(1, 0, 0, 1);
  none.clear_keys();
  CHECK(refusal(client.Pull(none).status) ==
        pull + "keys are absent or unknown, want dense or rows or some layers'");

  RunningServers dense(shape, 1, MakeBarrier, 2);
  PlainClient whole(dense);
  CHECK(refusal(whole.Push(Push(whole, 1, 1, 0, 1, 24, 1.0f))) ==
        push + "keys are some layers', want dense; the job's methods differ");
  CHECK(refusal(whole.Pull(Layers(1, 0, 0, 1)).status) ==
        pull + "keys are some layers', want dense or rows; the job's methods differ");
  chunks = whole.Chunks(1, 1, 1.0f);
  chunks[0].mutable_header()->set_summed(2);
  CHECK(refusal(whole.Push(chunks)) == push + "summed is 2, want 1 where keys are dense");
  chunks[0].mutable_header()->set_summed(1);
  CHECK(whole.Push(chunks).ok());
}

TEST_CASE("a push of nothing has no bytes, also where the codec's payloads have a head",
          "[rpc][service][layers]") {
  const ModelShape shape = TestShape(3, 2);
  const auto servers = Servers(shape, 1, {ThresholdCodec(), Codec()});
  PlainClient client(*servers);
  std::vector<v1::PushChunk> chunks = Push(client, 1, 1, 0, 0, 8, 0.5f);
  chunks[0].mutable_header()->set_codec(servers->codecs().push->name());
  const grpc::Status status = client.Push(chunks);
  CHECK(
      status.error_message() ==
      "push from member 1 exchange 1: payload is 8 bytes, want at most 0; layouts differ, compare "
      "layout_hash in status");
  chunks[0].clear_payload();
  chunks[0].mutable_header()->set_payload_bytes(0);
  CHECK(client.Push(chunks).ok());
  // Of a half it is checked as all of it would be.
  chunks = Push(client, 1, 2, 1, 2, 8, 0.5f);
  chunks[0].mutable_header()->set_codec(servers->codecs().push->name());
  CHECK(client.Push(chunks).error_code() == grpc::StatusCode::INVALID_ARGUMENT);
}

}  // namespace
}  // namespace tessera
