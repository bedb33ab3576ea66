// The data plane as any protobuf client sees it: the generated stub with ordinary messages.
#include "server/rpc/parameter_service.h"

#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <grpcpp/create_channel.h>
#include <grpcpp/grpcpp.h>

#include "common/consistency/barrier.h"
#include "common/consistency/none.h"
#include "common/rpc/chunk.h"
#include "proto/parameter_server.grpc.pb.h"
#include "tests/server/rpc/plain_client.h"
#include "tests/server/rpc/running_servers.h"
#include "tests/server/rpc/tiny_shape.h"

namespace tessera {
namespace {

std::unique_ptr<ConsistencyPolicy> None() { return MakeNone(1); }

using Client = PlainClient;
using Context = PlainContext;

TEST_CASE("an ordinary protobuf client pulls the initial values", "[rpc][service]") {
  RunningServers servers(TestShape(1200, 1000), 1, None, 1);
  Client client(servers);
  const Pulled pulled = client.Pull(Client::Request(1, 0));
  REQUIRE(pulled.status.ok());
  CHECK(pulled.header.version() == 0);
  CHECK(pulled.header.payload_bytes() == 1201 * 1000 * 4 + 200 * 4);
  CHECK(pulled.header.layout_hash() == servers.layout_hash());
  CHECK(pulled.header.generation() == 3);
  // A small first chunk, whole ones, and the rest.
  REQUIRE(pulled.chunks.size() == 6);
  CHECK(pulled.chunks.front() == 65536);
  for (size_t i = 1; i < 5; ++i) CHECK(pulled.chunks[i] == kChunkBytes);
  CHECK(pulled.chunks.back() == pulled.bytes.size() - 4 * kChunkBytes - 65536);
  std::vector<float> want(1200 * 1000);
  FillInitialRows(servers.shape().parameters[0], 0, 7, 0, 1200, want.data());
  CHECK(std::memcmp(pulled.bytes.data(), want.data(), want.size() * 4) == 0);
  CHECK(At(pulled.bytes, 1200 * 1000) == 0.5f);
  const DataPlaneTraffic traffic = servers[0].service->traffic();
  CHECK(traffic.pull_payload_bytes == pulled.bytes.size());
  CHECK(traffic.pull_wire_bytes > pulled.bytes.size());
  CHECK(traffic.other_payload_bytes == 0);
}

TEST_CASE("an ordinary protobuf client's push is applied once however often it comes",
          "[rpc][service]") {
  RunningServers servers(TestShape(8, 30), 1, None, 1);
  Client client(servers);
  const std::string before = client.Now().bytes;
  for (const int64_t chunk_bytes : {kChunkBytes, int64_t{7}}) {
    v1::PushReply reply;
    const grpc::Status status = client.Push(client.Chunks(1, 1, 2.0f, chunk_bytes), &reply);
    CHECK(status.error_message() == "");
    CHECK(reply.duplicate() == (chunk_bytes == 7));
    const Pulled after = client.Pull(Client::Request(1, 1));
    CHECK(after.header.version() == 1);
    CHECK(At(after.bytes, 5) == At(before, 5) + 2.0f);
  }
  // In pieces with borders inside entries, for the first time.
  CHECK(client.Push(client.Chunks(1, 2, 1.0f, 7)).ok());
  CHECK(At(client.Pull(Client::Request(1, 2)).bytes, 247) == 3.5f);
}

TEST_CASE("a bad push gets a precise answer and changes nothing", "[rpc][service]") {
  RunningServers servers(TestShape(8, 30), 1, None, 1);
  Client client(servers);
  const Pulled before = client.Now();
  using Chunks = std::vector<v1::PushChunk>;
  const auto expect = [&](const std::function<void(Chunks&)>& spoil, grpc::StatusCode code,
                          const std::string& message) {
    Chunks chunks = client.Chunks(1, 1, 2.0f, 500);
    spoil(chunks);
    const grpc::Status status = client.Push(chunks);
    INFO(message);
    CHECK(status.error_code() == code);
    const std::string& got = status.error_message();
    CHECK(got.substr(0, message.size()) == message);
  };
  const auto invalid = grpc::StatusCode::INVALID_ARGUMENT;
  const auto refused = grpc::StatusCode::FAILED_PRECONDITION;
  const std::string where = "push from member 1 exchange 1: ";
  expect([](Chunks& c) { c.pop_back(); }, invalid, where + "payload ended after 500 of 992 bytes");
  expect([](Chunks& c) { c[0].mutable_header()->set_payload_bytes(988); }, invalid,
         where +
             "payload is 988 bytes, want 992 (248 entries as f32); layouts differ, compare "
             "layout_hash in status");
  expect([](Chunks& c) { c[1].mutable_payload()->append("more"); }, invalid,
         where + "payload is at least 996 bytes, want the declared 992");
  expect([](Chunks& c) { c.push_back(c.back()); }, invalid,
         where + "payload is at least 1484 bytes");
  expect([](Chunks& c) { c[0].mutable_payload()->append(1000, 'x'); }, invalid,
         where + "payload is at least 1500 bytes");
  expect([](Chunks& c) { c.insert(c.end() - 1, 1100, v1::PushChunk()); }, invalid,
         where + "1025 chunks have 500 bytes, want at least 1024 bytes a chunk");
  expect([](Chunks& c) { c[0].mutable_header()->mutable_caller()->set_job_digest("other"); },
         invalid, where + "job digest is \"other\", want \"" + kDigest + "\"");
  expect(
      [](Chunks& c) {
        c[0].mutable_header()->mutable_caller()->set_job_digest(std::string(50000, 'x'));
      },
      invalid, where + "job digest is \"" + std::string(64, 'x') + "\"");
  expect([](Chunks& c) { c[0].mutable_header()->mutable_caller()->set_generation(2); }, refused,
         where + "generation is 2, want 3");
  expect([](Chunks& c) { c[0].mutable_header()->mutable_caller()->set_member(0); }, refused,
         "push from member 0 exchange 1: member is 0");
  expect([](Chunks& c) { c[0].mutable_header()->mutable_caller()->set_member(9); }, refused,
         "push from member 9 exchange 1: not a member");
  expect([](Chunks& c) { c[0].mutable_header()->set_base_version(1); }, invalid,
         where + "base version is 1, ahead");
  expect([](Chunks& c) { c[0].mutable_header()->set_layout_hash(5); }, invalid,
         where + "layout_hash is 5");
  expect([](Chunks& c) { c[0].mutable_header()->set_kind(v1::VALUE); }, invalid,
         where + "payload kind is 2");
  expect([](Chunks& c) { c[0].mutable_header()->clear_keys(); }, invalid,
         where + "keys are absent");
  expect([](Chunks& c) { c[0].mutable_header()->set_exchange(2); }, refused,
         "push from member 1 exchange 2: want exchange 1");
  expect([](Chunks& c) { c[1].mutable_header(); }, invalid, where + "has a second header");
  expect([](Chunks& c) { c.erase(c.begin()); }, invalid, "push from ipv4:127.0.0.1:");
  expect([](Chunks& c) { c.clear(); }, invalid, "push from ipv4:127.0.0.1:");
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    // Entry 126 = row 4, column 6, in the second chunk.
    expect([bad](Chunks& c) { std::memcpy(&(*c[1].mutable_payload())[4], &bad, 4); }, invalid,
           where + "layers.0.weight[4, 6] is not finite");
  }
  const Pulled after = client.Now();
  CHECK(after.header.version() == 0);
  CHECK(after.bytes == before.bytes);
  CHECK(client.Push(client.Chunks(1, 1, 2.0f)).ok());
}

TEST_CASE("a pull with a bad request gets a precise answer", "[rpc][service]") {
  RunningServers servers(TestShape(8, 30), 1, None, 1);
  Client client(servers);
  v1::PullRequest request = Client::Request(1, 0);
  request.mutable_caller()->set_job_digest("other");
  CHECK(client.Pull(request).status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  request = Client::Request(0, 0, true);
  CHECK(client.Pull(request).status.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  request = Client::Request(9, 0);
  CHECK(client.Pull(request).status.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  request = Client::Request(1, 0);
  request.clear_keys();
  CHECK(client.Pull(request).status.error_message() ==
        "pull from member 1 after exchange 0: keys are absent or unknown, want dense or rows");
  servers[0].service->SetGeneration(Generation(4));
  CHECK(client.Pull(Client::Request(1, 0)).status.error_message() ==
        "pull from member 1 after exchange 0: generation is 3, want 4; the job was restored, drop "
        "the update and pull");
}

// Under a barrier member 2 is not the first in order, so it needs a place in staging, which holds
// 16 MiB: one push of 10 MB. A place that is not given back makes the next push wait for ever.
struct TightStaging {
  RunningServers servers{TestShape(2500, 1000), 1, MakeBarrier, 3};
  Client client{servers};

  static constexpr int64_t kBegunBytes = 8000000, kSmallBytes = 2000;

  // Begins a push and returns once the server has granted it a place and read on.
  struct Begun {
    Context context;
    v1::PushReply reply;
    std::unique_ptr<grpc::ClientWriter<v1::PushChunk>> writer;
  };
  std::unique_ptr<Begun> Begin(uint64_t member) {
    auto begun = std::make_unique<Begun>();
    begun->writer = client.stub().Push(&begun->context, &begun->reply);
    const auto chunks = client.Chunks(member, 1, 1.0f, kBegunBytes / 8);
    for (int i = 0; i < 8; ++i) CHECK(begun->writer->Write(chunks[i]));
    return begun;
  }
  // Begins a push that does not fit beside the first one: one message is read, then it waits.
  // The second one is small enough to be on its way meanwhile.
  std::unique_ptr<Begun> BeginWaiting(uint64_t member) {
    auto begun = std::make_unique<Begun>();
    begun->writer = client.stub().Push(&begun->context, &begun->reply);
    const auto chunks = client.Chunks(member, 1, 1.0f, kSmallBytes);
    for (int i = 0; i < 2; ++i) CHECK(begun->writer->Write(chunks[i]));
    return begun;
  }
  void AllPushes() {
    for (const int member : {2, 1, 3}) {
      CHECK(client.Push(client.Chunks(member, 1, member)).error_message() == "");
    }
  }
};

TEST_CASE("a push cancelled in the middle gives its place back and leaves no trace",
          "[rpc][service]") {
  TightStaging tight;
  const Pulled before = tight.client.Now();
  for (int i = 0; i < 4; ++i) {
    const auto push = tight.Begin(2);
    push->context.TryCancel();
    CHECK(push->writer->Finish().error_code() == grpc::StatusCode::CANCELLED);
  }
  CHECK(tight.client.Now().bytes == before.bytes);
  CHECK(tight.client.Now().header.version() == 0);
  tight.AllPushes();
  CHECK(At(tight.client.Pull(Client::Request(2, 1)).bytes, 2500 * 1000) == 2.5f);
}

TEST_CASE("refused pushes give their places back", "[rpc][service]") {
  TightStaging tight;
  for (int i = 0; i < 3; ++i) {
    auto chunks = tight.client.Chunks(2, 1, 1.0f);
    chunks.back().mutable_payload()->append("x");
    CHECK(tight.client.Push(chunks).error_code() == grpc::StatusCode::INVALID_ARGUMENT);
    chunks.pop_back();
    CHECK(tight.client.Push(chunks).error_code() == grpc::StatusCode::INVALID_ARGUMENT);
    CHECK(tight.client.Push(tight.client.Chunks(2, 1, std::nanf(""))).error_code() ==
          grpc::StatusCode::INVALID_ARGUMENT);
  }
  tight.AllPushes();
}

TEST_CASE("a duplicate push gives its place back", "[rpc][service]") {
  TightStaging tight;
  CHECK(tight.client.Push(tight.client.Chunks(1, 1, 1.0f)).ok());
  for (int i = 0; i < 3; ++i) {
    v1::PushReply reply;
    CHECK(tight.client.Push(tight.client.Chunks(1, 1, 1.0f), &reply).ok());
    CHECK(reply.duplicate());
  }
  tight.AllPushes();
}

TEST_CASE("a push that waits for a place can be cancelled there", "[rpc][service]") {
  TightStaging tight;
  const auto holder = tight.Begin(2);
  const auto waiter = tight.BeginWaiting(3);
  const auto read = [&tight] { return tight.servers[0].service->traffic().push_payload_bytes; };
  constexpr uint64_t kOfBoth = TightStaging::kBegunBytes + TightStaging::kSmallBytes;
  REQUIRE(Eventually([&] { return read() >= kOfBoth; }));
  // Answers after the waiter has come to the shard.
  CHECK(tight.client.Now().status.ok());
  // Without its place no more is read.
  absl::SleepFor(absl::Milliseconds(50));
  CHECK(read() == kOfBoth);
  waiter->context.TryCancel();
  CHECK(waiter->writer->Finish().error_code() == grpc::StatusCode::CANCELLED);
  holder->context.TryCancel();
  holder->writer->Finish();
  tight.AllPushes();
}

TEST_CASE("a server can stop while pushes and pulls wait in it", "[rpc][service]") {
  TightStaging tight;
  const auto holder = tight.Begin(2);
  const auto waiter = tight.BeginWaiting(3);
  Context context;
  const auto reader = tight.client.stub().Pull(&context, Client::Request(1, 1));
  CHECK(tight.client.Now().status.ok());
  tight.servers[0].grpc->Shutdown(absl::ZeroDuration());
  CHECK_FALSE(holder->writer->Finish().ok());
  CHECK_FALSE(waiter->writer->Finish().ok());
  CHECK_FALSE(reader->Finish().ok());
}

TEST_CASE("a pull waits for the others' pushes and is forgotten when its client goes",
          "[rpc][service]") {
  RunningServers servers(TestShape(8, 30), 1, MakeBarrier, 2);
  Client client(servers);
  CHECK(client.Push(client.Chunks(1, 1, 2.0f)).ok());
  const auto parked = [&servers] {
    absl::Mutex mutex;
    uint64_t reads = 0;
    bool answered = false;
    servers[0].thread->Inspect(false, [&](const ShardThread::View& view) {
      absl::MutexLock lock(&mutex);
      reads = view.parked_reads;
      answered = true;
    });
    absl::MutexLock lock(&mutex);
    mutex.Await(absl::Condition(&answered));
    return reads;
  };
  {
    Context context;
    const auto reader = client.stub().Pull(&context, Client::Request(1, 1));
    while (parked() != 1) {
    }
    context.TryCancel();
    CHECK(reader->Finish().error_code() == grpc::StatusCode::CANCELLED);
    while (parked() != 0) {
    }
  }
  Context context;
  const auto reader = client.stub().Pull(&context, Client::Request(1, 1));
  while (parked() != 1) {
  }
  CHECK(client.Push(client.Chunks(2, 1, 4.0f)).ok());
  v1::Chunk chunk;
  REQUIRE(reader->Read(&chunk));
  CHECK(chunk.header().version() == 1);
  CHECK(At(chunk.payload(), 240) == 3.5f);
}

TEST_CASE("a reader that does not read is cut off, and others are not", "[rpc][service][slow]") {
  RunningServers servers(TestShape(12000, 1000), 1, None, 1);  // 48 MB
  Client client(servers);
  Context stuck_context;
  const auto stuck = client.stub().Pull(&stuck_context, Client::Request(1, 0));
  v1::Chunk chunk;
  REQUIRE(stuck->Read(&chunk));
  CHECK(chunk.header().version() == 0);
  REQUIRE(client.Push(client.Chunks(1, 1, 1.0f)).ok());
  Client other(servers);
  Context later_context;
  const auto later = other.stub().Pull(&later_context, Client::Request(1, 1));
  REQUIRE(later->Read(&chunk));
  CHECK(chunk.header().version() == 1);
  std::string bytes = chunk.payload();
  // The second copy of everything does not fit beside the first one.
  Client third(servers);
  REQUIRE(third.Push(third.Chunks(1, 2, 1.0f)).ok());
  REQUIRE(third.Pull(Client::Request(1, 2)).status.ok());
  REQUIRE(third.Push(third.Chunks(1, 3, 1.0f)).ok());
  while (stuck->Read(&chunk)) {
  }
  const grpc::StatusCode code = stuck->Finish().error_code();
  CHECK((code == grpc::StatusCode::ABORTED || code == grpc::StatusCode::CANCELLED));
  while (later->Read(&chunk)) bytes += chunk.payload();
  CHECK(later->Finish().ok());
  CHECK(At(bytes, 12000 * 1000) == 1.5f);
  CHECK(At(bytes, 12000 * 1000 + 11999) == 1.5f);
  CHECK(servers[0].service->traffic().readers_cut_off == 1);
}

TEST_CASE("a taken port and a bad address are refused with the reason", "[rpc][server]") {
  RunningServers servers(TestShape(2, 2), 1, None, 1);
  const std::string taken = servers.addresses()[0];
  const auto again = GrpcServer::Start({taken, {}});
  REQUIRE_FALSE(again.ok());
  CHECK(again.status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(again.status().message() ==
        "grpc server: port " + std::to_string(servers[0].grpc->port()) + " of \"" + taken +
            "\" is taken, want a free one; stop its owner or take another");
  for (const std::string bad :
       {"", "localhost", ":80", "127.0.0.1:x", "127.0.0.1:65536", "127.0.0.1:-1"}) {
    CHECK(GrpcServer::Start({bad, {}}).status().code() == absl::StatusCode::kInvalidArgument);
  }
  // An address for documentation, nobody's.
  CHECK(GrpcServer::Start({"192.0.2.1:7000", {}}).status().code() ==
        absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace tessera
