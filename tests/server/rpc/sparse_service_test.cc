// Exchanges of a core and explorers as any protobuf client sees them: the generated stub with ordinary
// messages.
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <grpcpp/create_channel.h>
#include <grpcpp/grpcpp.h>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/consistency/none.h"
#include "common/keyset/entry_keys.h"
#include "proto/parameter_server.grpc.pb.h"
#include "server/core/core_agreement.h"
#include "tests/server/rpc/running_servers.h"
#include "tests/server/shard/thread_calls.h"

namespace tessera {
namespace {

constexpr CoreShare kShare{0.5, 0.25, 3, 0};
constexpr int64_t kEntries = 8 * 30 + 8;

struct Context : grpc::ClientContext {
  Context() { set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20)); }
};

// One server that selects its cores, and a client.
class Job {
 public:
  explicit Job(bool has_core = true)
      : servers_(
            TestShape(8, 30), 1, [] { return MakeNone(1); }, 1, std::nullopt, false, {},
            has_core ? std::make_optional(kShare) : std::nullopt),
        agreement_({1, 2, kEntries, static_cast<uint64_t>(CoreCount(kShare, kEntries)), 0}) {
    if (has_core) {
      SetCoreListener(*servers_[0].thread, [this](const CoreReport& report) {
        for (const auto& [to, question] : agreement_.OnReport(ShardId(0), report)) {
          tessera::AskCore(*servers_[0].thread, question);
        }
      });
    }
    stub_ = v1::ParameterServer::NewStub(
        grpc::CreateChannel(servers_.addresses()[0], grpc::InsecureChannelCredentials()));
  }
  ~Job() { servers_.EndCoreListeners(); }

  static v1::Caller Caller() {
    v1::Caller caller;
    caller.set_member(1);
    caller.set_job_digest(kDigest);
    caller.set_generation(3);
    return caller;
  }

  grpc::Status Pull(v1::PullRequest request, v1::ChunkHeader* header, std::string* bytes) {
    *request.mutable_caller() = Caller();
    Context context;
    const auto reader = stub_->Pull(&context, request);
    v1::Chunk chunk;
    bytes->clear();
    while (reader->Read(&chunk)) {
      if (chunk.has_header()) *header = chunk.header();
      bytes->append(chunk.payload());
    }
    return reader->Finish();
  }

  // The name of the first core, whose keys go to `bytes`.
  v1::SparseKeys AskCore(std::string* bytes) {
    v1::PullRequest request;
    request.set_core_wanted(0);
    v1::ChunkHeader header;
    REQUIRE(Pull(request, &header, bytes).ok());
    CHECK(header.payload_bytes() == bytes->size());
    CHECK(header.core().keys_bytes() == bytes->size());
    return header.core();
  }

  v1::PushChunk ChunkOf(const v1::SparseKeys& core, int64_t entries) {
    v1::PushChunk chunk;
    v1::PushHeader& header = *chunk.mutable_header();
    *header.mutable_caller() = Caller();
    *header.mutable_keys()->mutable_sparse() = core;
    header.mutable_keys()->mutable_sparse()->set_keys_bytes(0);
    header.set_exchange(1);
    header.set_payload_bytes(4 * entries);
    header.set_layout_hash(servers_.layout_hash());
    chunk.set_payload(std::string(4 * entries, '\0'));
    return chunk;
  }

  grpc::Status Push(const std::vector<v1::PushChunk>& chunks, v1::PushReply* reply) {
    Context context;
    const auto writer = stub_->Push(&context, reply);
    for (const v1::PushChunk& chunk : chunks) writer->Write(chunk);
    writer->WritesDone();
    return writer->Finish();
  }

  // No push has or keeps a place: only then is there one for any number of bytes.
  bool AllPlacesAreFree() {
    constexpr int64_t kMuch = int64_t{1} << 40;
    ShardThread& shard = *servers_[0].thread;
    const auto granted = std::make_shared<absl::Notification>();
    Reserve(shard, MemberId(1), kMuch, [granted](const absl::Status& status) {
      if (status.ok()) granted->Notify();
    });
    if (!granted->WaitForNotificationWithTimeout(absl::Seconds(5))) return false;
    shard.Release(MemberId(1), kMuch);
    return true;
  }

  RunningServers servers_;
  CoreAgreement agreement_;
  std::unique_ptr<v1::ParameterServer::Stub> stub_;
};

TEST_CASE("an ordinary client asks for a core's keys, pushes its entries and pulls them",
          "[rpc][core]") {
  Job job;
  std::string bytes;
  const v1::SparseKeys core = job.AskCore(&bytes);
  CHECK(core.core() == 0);
  const auto keys = DecodeKeys(static_cast<int>(core.key_form()), bytes, kEntries);
  REQUIRE(keys.ok());
  CHECK(keys->count() == 62);
  v1::PushReply reply;
  const grpc::Status pushed = job.Push({job.ChunkOf(core, 124)}, &reply);
  INFO(pushed.error_message());
  REQUIRE(pushed.ok());
  CHECK_FALSE(reply.need_keys());
  v1::PullRequest request;
  *request.mutable_keys()->mutable_sparse() = core;
  request.set_after_exchange(1);
  v1::ChunkHeader header;
  REQUIRE(job.Pull(request, &header, &bytes).ok());
  CHECK(bytes.size() == 4 * 124);
  CHECK(header.cores() == 1);
}

// The keys' bytes had a place and were not in what went back.
TEST_CASE("a push that brings a core's keys in several chunks leaves no place taken",
          "[rpc][core]") {
  Job job;
  std::string keys;
  const v1::SparseKeys core = job.AskCore(&keys);
  REQUIRE(job.AllPlacesAreFree());
  v1::PushChunk first = job.ChunkOf(core, 124);
  first.mutable_header()->mutable_keys()->mutable_sparse()->set_keys_bytes(keys.size());
  first.mutable_header()->set_payload_bytes(keys.size() + 4 * 124);
  first.set_payload(keys);
  v1::PushChunk second;
  second.set_payload(std::string(4 * 124, '\0'));
  v1::PushReply reply;
  const grpc::Status pushed = job.Push({first, second}, &reply);
  INFO(pushed.error_message());
  REQUIRE(pushed.ok());
  CHECK_FALSE(reply.need_keys());
  CHECK(job.AllPlacesAreFree());
}

TEST_CASE("a signature that is not known is answered with a question, before anything is taken",
          "[rpc][core]") {
  Job job;
  std::string bytes;
  v1::SparseKeys core = job.AskCore(&bytes);
  core.mutable_signature()->at(3) ^= 1;
  v1::PushReply reply;
  // Of much more than has been sent: nothing waits for it.
  v1::PushChunk chunk = job.ChunkOf(core, 124);
  chunk.mutable_header()->set_payload_bytes(496);
  chunk.set_payload(std::string(8, '\0'));
  REQUIRE(job.Push({chunk}, &reply).ok());
  CHECK(reply.need_keys());
  v1::PullRequest request;
  *request.mutable_keys()->mutable_sparse() = core;
  v1::ChunkHeader header;
  REQUIRE(job.Pull(request, &header, &bytes).ok());
  CHECK(header.need_keys());
  CHECK(bytes.empty());
}

TEST_CASE("a bad exchange of a core gets a precise answer and changes nothing", "[rpc][core]") {
  Job job;
  std::string bytes;
  const v1::SparseKeys core = job.AskCore(&bytes);
  const auto invalid = grpc::StatusCode::INVALID_ARGUMENT;
  const auto refused = grpc::StatusCode::FAILED_PRECONDITION;
  const auto push = [&](const std::function<void(v1::PushChunk*)>& spoil, grpc::StatusCode code,
                        const std::string& message) {
    v1::PushChunk chunk = job.ChunkOf(core, 124);
    spoil(&chunk);
    v1::PushReply reply;
    const grpc::Status status = job.Push({chunk}, &reply);
    INFO(status.error_message());
    CHECK(status.error_code() == code);
    CHECK(status.error_message().find(message) != std::string::npos);
  };
  const auto keys = [](v1::PushChunk* chunk) {
    return chunk->mutable_header()->mutable_keys()->mutable_sparse();
  };
  push([&](auto* c) { keys(c)->set_signature("short"); }, invalid,
       "core: signature has 5 bytes, want 16");
  push([&](auto* c) { keys(c)->set_keys_bytes(1000); }, invalid,
       "keys are 1000 bytes, want at most 31");
  push([&](auto* c) { c->mutable_header()->set_payload_bytes(8 * kEntries); }, invalid,
       "payload is 1984 bytes");
  push([&](auto* c) { c->mutable_header()->set_payload_bytes(495); }, invalid,
       "payload is 495 bytes");
  push(
      [&](auto* c) {
        c->mutable_header()->set_payload_bytes(400);
        c->set_payload(std::string(400, '\0'));
      },
      invalid, "payload is 400 bytes, want 496 (124 entries as f32)");
  push([&](auto* c) { c->mutable_payload()->replace(8, 4, "\xff\xff\xff\xff"); }, invalid,
       "is not finite");
  // Its keys would be asked for, but they have come.
  push(
      [&](auto* c) {
        keys(c)->set_core(3);
        keys(c)->set_keys_bytes(1);
        c->mutable_header()->set_payload_bytes(497);
        c->mutable_payload()->append(1, '\0');
      },
      refused, "core is 3, want at most 0");
  push([&](auto* c) { c->mutable_header()->set_exchange(3); }, refused,
       "keys are sparse, want dense");
  // Keys that come though they are known are not looked at.
  v1::PushChunk chunk = job.ChunkOf(core, 124);
  keys(&chunk)->set_keys_bytes(2);
  chunk.mutable_header()->set_payload_bytes(2 + 496);
  chunk.set_payload(std::string(2, 'x') + chunk.payload());
  v1::PushReply reply;
  CHECK(job.Push({chunk}, &reply).ok());

  v1::ChunkHeader header;
  v1::PullRequest request;
  *request.mutable_keys()->mutable_sparse() = core;
  request.set_outside_exchange(true);
  CHECK(job.Pull(request, &header, &bytes)
            .error_message()
            .find("keys are sparse, want dense or rows outside an exchange") != std::string::npos);
}

TEST_CASE("where all entries are exchanged a core's are refused", "[rpc][core]") {
  Job job(/*has_core=*/false);
  v1::SparseKeys core;
  core.set_signature(std::string(16, 's'));
  v1::PushReply reply;
  CHECK(job.Push({job.ChunkOf(core, 124)}, &reply)
            .error_message()
            .find("keys are sparse, want dense; the job's methods differ") != std::string::npos);
  v1::PullRequest request;
  *request.mutable_keys()->mutable_sparse() = core;
  v1::ChunkHeader header;
  std::string bytes;
  CHECK(job.Pull(request, &header, &bytes).error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  request.Clear();
  request.set_core_wanted(0);
  CHECK(job.Pull(request, &header, &bytes).error_message().find("the job's method has no core") !=
        std::string::npos);
}

}  // namespace
}  // namespace tessera
