// Pushes that never come to an end, whose they are, how many there may be, and who gives way; and messages that
// would grow.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "absl/synchronization/mutex.h"
#include "common/codec/bf16.h"
#include "common/codec/codec.h"
#include "common/codec/threshold.h"
#include "common/consistency/none.h"
#include "server/rpc/data_plane.h"
#include "tests/common/rpc/compressed_call.h"
#include "tests/server/rpc/plain_client.h"
#include "tests/server/rpc/running_servers.h"
#include "tests/server/rpc/tiny_shape.h"

namespace tessera {
namespace {

std::unique_ptr<ConsistencyPolicy> None() { return MakeNone(1); }

// Pushes that have begun and said nothing, on connections of their own.
class SilentPushes {
 public:
  SilentPushes(RunningServers& servers, int count) {
    for (int i = 0; i < count; ++i) {
      if (i % 16 == 0) clients_.push_back(std::make_unique<PlainClient>(servers));
      contexts_.push_back(std::make_unique<PlainContext>());
      calls_.push_back(clients_.back()->stub().Push(contexts_.back().get(), &reply_));
    }
  }
  // Of the call that the server ends first, whichever it heard of first; the others are cancelled then.
  grpc::Status FirstEnd() {
    absl::Mutex mutex;
    std::optional<grpc::Status> first;
    std::vector<std::thread> threads;
    for (const auto& call : calls_) {
      threads.emplace_back([&, call = call.get()] {
        const grpc::Status status = call->Finish();
        absl::MutexLock lock(&mutex);
        if (first.has_value()) return;
        first = status;
        for (const auto& context : contexts_) context->TryCancel();
      });
    }
    for (std::thread& thread : threads) thread.join();
    return *first;
  }
  ~SilentPushes() {
    for (size_t i = 0; i < calls_.size(); ++i) contexts_[i]->TryCancel();
  }

 private:
  v1::PushReply reply_;
  std::vector<std::unique_ptr<PlainClient>> clients_;
  std::vector<std::unique_ptr<PlainContext>> contexts_;
  std::vector<std::unique_ptr<grpc::ClientWriter<v1::PushChunk>>> calls_;
};

TEST_CASE("pushes whose header does not come give way to later ones, and good pushes pass",
          "[rpc][service][limits]") {
  RunningServers servers(TestShape(30, 10), 1, None, 1);
  PlainClient client(servers);
  const int most = static_cast<int>(kHalfOpenPushesPerHost);
  SilentPushes silent(servers, most + 8);
  for (uint64_t exchange = 1; exchange <= 3; ++exchange) {
    REQUIRE(client.Push(client.Chunks(1, exchange, 1.0f)).ok());
  }
  CHECK(At(client.Now().bytes, 0) != 0);
  const grpc::Status status = silent.FirstEnd();
  CHECK(status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  CHECK(
      status.error_message().find("header has not come, and 64 later pushes of this host wait for "
                                  "theirs, want at most 64") != std::string::npos);
}

TEST_CASE("a member's push gives way when it has begun too many others", "[rpc][service][limits]") {
  RunningServers servers(TestShape(1200, 1000), 1, None, 1);
  PlainClient client(servers);
  std::vector<std::unique_ptr<PlainContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientWriter<v1::PushChunk>>> calls;
  v1::PushReply reply;
  const auto chunks = client.Chunks(1, 1, 1.0f);
  for (size_t i = 0; i < kPushesPerMemberMax; ++i) {
    contexts.push_back(std::make_unique<PlainContext>());
    calls.push_back(client.stub().Push(contexts.back().get(), &reply));
    REQUIRE(calls.back()->Write(chunks[0]));
    // In this order: calls may overtake each other.
    const uint64_t read = (i + 1) * chunks[0].payload().size();
    REQUIRE(Eventually([&] { return servers[0].service->traffic().push_payload_bytes == read; }));
  }
  // As many as may be: the member's next one is whole, and takes the place of the first.
  REQUIRE(client.Push(chunks).ok());
  CHECK(calls[0]->Finish().error_code() == grpc::StatusCode::CANCELLED);
  for (const auto& context : contexts) context->TryCancel();
  CHECK(At(client.Now().bytes, 1200 * 1000) == 1.5f);
}

TEST_CASE("a packed payload is not unpacked for somebody who is no member",
          "[rpc][service][limits]") {
  CodecChoice codecs;
  codecs.push = ThresholdCodec({0, 0.002, /*packed=*/true});
  RunningServers servers(TestShape(30, 10), 1, None, 1, std::nullopt, false, codecs);
  PlainClient client(servers);
  // One block that is none.
  const std::string payload("\0\0\x80\x3f\1\0\0\0\1\0\0\0\4\0\0\0none", 20);
  const auto push = [&](uint64_t member) {
    std::vector<v1::PushChunk> chunks = client.Chunks(member, 1, 1.0f);
    chunks.resize(1);
    chunks[0].mutable_header()->set_codec(codecs.push->name());
    chunks[0].mutable_header()->set_payload_bytes(payload.size());
    chunks[0].set_payload(payload);
    return client.Push(chunks).error_message();
  };
  CHECK(push(2).find("not a member of the current plan") != std::string::npos);
  CHECK(push(1).find("threshold: a frame does not unpack") != std::string::npos);
}

TEST_CASE("a compressed pull or push is refused and never unpacked",
          "[rpc][service][limits][compression]") {
  RunningServers servers(TestShape(30, 10), 1, None, 1);
  for (const char* call : {"Pull", "Push"}) {
    CheckThatNothingIsUnpacked(servers[0].grpc->port(),
                               std::string("/tessera.v1.ParameterServer/") + call);
  }
  PlainClient client(servers);
  CHECK(client.Push(client.Chunks(1, 1, 1.0f)).ok());
  CHECK(At(client.Now().bytes, 0) != 0);
}

TEST_CASE("coded answers that nobody reads hold so many bytes, and one that reads gets its own",
          "[rpc][service][strangers]") {
  // Answers of 8 MiB, of which a client that does not read takes some.
  const ModelShape shape = TestShape(1024, 4096);
  CodecChoice codecs;
  codecs.pull = Bf16Codec();
  RunningServers servers(shape, 1, None, 1, std::nullopt, /*has_tail=*/false, codecs);
  std::vector<std::unique_ptr<PlainClient>> clients;
  std::vector<std::unique_ptr<PlainContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::Chunk>>> calls;
  v1::PullRequest request = PlainClient::Request(1, 0);
  request.set_codec("bf16");
  UnreadReplies& unread = servers[0].service->unread_answers();
  int64_t most = 0;
  for (int i = 0; i < 96; ++i) {
    if (i % 16 == 0) clients.push_back(std::make_unique<PlainClient>(servers));
    contexts.push_back(std::make_unique<PlainContext>());
    calls.push_back(clients.back()->stub().Pull(contexts.back().get(), request));
    most = std::max(most, unread.bytes());
  }
  // All are there: one that came later would have the place of the answer that is read.
  CHECK(Eventually([&] {
    most = std::max(most, unread.bytes());
    return unread.given_way() >= 96 - kUnreadAnswerBytes / kChunkBytes;
  }));
  CHECK(most <= kUnreadAnswerBytes);
  CHECK(most > kUnreadAnswerBytes / 2);
  PlainClient reads(servers);
  CHECK(reads.Pull(request).status.ok());
  for (const auto& context : contexts) context->TryCancel();
  for (const auto& call : calls) call->Finish();
  CHECK(Eventually([&] { return unread.bytes() == 0; }));
}

}  // namespace
}  // namespace tessera
