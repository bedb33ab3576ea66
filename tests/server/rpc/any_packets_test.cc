// What members say by their links, drawn from seeds: packets of any kind, with any numbers, right and wrong bodies, of
// which the answers are read or not, and links that end at any moment. Whatever it is, nothing of it stays, the shard
// holds what it held unless a push was accepted, and others are served.
#include <sys/socket.h>

#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/base/steady_clock.h"
#include "common/rpc/grpc_server.h"
#include "common/rpc/shared_memory/local_packet.h"
#include "common/rpc/shared_memory/memory_hello.h"
#include "common/rpc/shared_memory/shared_arena.h"
#include "proto/parameter_server.grpc.pb.h"
#include "server/rpc/parameter_service.h"
#include "server/shard/shard_thread.h"
#include "tests/fuzz/fuzz_job.h"
#include "tests/server/shard/thread_calls.h"

namespace tessera {
namespace {

constexpr int kSeeds = 60;
constexpr int kMembers = 2;
constexpr absl::Duration kPatience = absl::Seconds(20);

grpc::ByteBuffer Bytes(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

// A server that shares memory, and its members' links.
class Site {
 public:
  explicit Site(const FuzzJob& job) : job(job) {
    thread = std::make_unique<ShardThread>(job.MakeShard());
    service = std::make_unique<ParameterService>(thread.get(), job.digest, Generation(0));
    REQUIRE(service->ShareMemory().ok());
    server = *GrpcServer::Start({"127.0.0.1:0", {service->service()}});
    stub = v1::ParameterServer::NewStub(server->OpenWithin());
    SetPlan(*thread, FuzzPlan(1, kMembers));
  }
  ~Site() { server->Shutdown(absl::ZeroDuration()); }

  std::shared_ptr<MemoryLink> Link(uint64_t member) {
    v1::ShareMemoryRequest request;
    request.mutable_caller()->set_member(member);
    request.mutable_caller()->set_job_digest(job.digest);
    request.set_machine(SteadyClockName());
    v1::ShareMemoryReply reply;
    grpc::ClientContext context;
    REQUIRE(stub->ShareMemory(&context, request, &reply).ok());
    return *ConnectMemory(reply.socket(), reply.link(), SharedArena::OfProcess(), kPatience);
  }

  ShardThread::View View() {
    absl::Notification done;
    ShardThread::View view;
    thread->Inspect(true, [&](ShardThread::View seen) {
      view = std::move(seen);
      done.Notify();
    });
    done.WaitForNotification();
    return view;
  }

  // As evaluations read, which never wait.
  bool IsServed(uint64_t member) {
    grpc::ClientContext context;
    v1::PullRequest request;
    request.mutable_caller()->set_job_digest(job.digest);
    request.mutable_caller()->set_member(member);
    request.mutable_keys()->mutable_dense();
    request.set_outside_exchange(true);
    const auto reader = stub->Pull(&context, request);
    size_t received = 0;
    for (v1::Chunk chunk; reader->Read(&chunk);) received += chunk.payload().size();
    return reader->Finish().ok() &&
           received == static_cast<size_t>(thread->traits().slices.bytes());
  }

  const FuzzJob& job;
  std::unique_ptr<ShardThread> thread;
  std::unique_ptr<ParameterService> service;
  std::unique_ptr<GrpcServer> server;
  std::unique_ptr<v1::ParameterServer::Stub> stub;
};

class Speaker {
 public:
  Speaker(Site* site, uint64_t seed) : site_(*site), random_(seed) {
    for (uint64_t member = 1; member <= kMembers; ++member) links_.push_back(site_.Link(member));
  }

  void Run() {
    for (uint64_t packets = Below(60); packets > 0; --packets) {
      const size_t member = Below(kMembers);
      std::shared_ptr<MemoryLink>& link = links_[member];
      if (Below(30) == 0) link = site_.Link(member + 1);  // The one before ends.
      const int connection = link->connection();
      if (Below(20) == 0) {
        const std::string raw = Noise();
        static_cast<void>(!send(connection, raw.data(), raw.size(), MSG_DONTWAIT | MSG_NOSIGNAL));
      } else if (Below(4) == 0) {
        reader_.Next(connection).IgnoreError();
      } else {
        Send(*link, member + 1);
      }
    }
  }

 private:
  uint64_t Below(uint64_t end) { return random_() % end; }
  bool Often() { return Below(8) != 0; }
  std::string Noise() {
    std::string bytes(Below(40), '\0');
    for (char& byte : bytes) byte = static_cast<char>(Below(256));
    return bytes;
  }

  // An error is the link's end, as of one that has broken a rule before.
  void Send(MemoryLink& link, uint64_t member) {
    // Few numbers, so that some are used twice.
    const auto call = static_cast<uint32_t>(Below(24));
    PacketKind kind = PacketKind::kPush;
    std::string body;
    switch (Below(6)) {
      case 0:
        kind = PacketKind::kPull, body = Pull(link, member);
        break;
      case 1:
        kind = PacketKind::kFetch, body = Fetch(link, member);
        break;
      case 2:
        kind = PacketKind::kCancel;
        break;
      case 3:
        kind = static_cast<PacketKind>(Below(10)), body = Noise();
        break;
      default:
        body = Push(link, member);
    }
    SendPacket(link.connection(), call, kind, Bytes(body)).IgnoreError();
  }

  void Name(const MemoryLink& link, uint64_t member, v1::Caller* caller) {
    caller->set_member(Often() ? member : Below(4));
    caller->set_job_digest(site_.job.digest);
    caller->set_link(Often() ? link.number() : Below(3));
  }

  std::string Pull(const MemoryLink& link, uint64_t member) {
    v1::PullRequest request;
    Name(link, member, request.mutable_caller());
    if (Often()) request.mutable_keys()->mutable_dense();
    request.set_after_exchange(Below(3));
    request.set_outside_exchange(Below(2) == 0);
    if (!Often()) request.set_core_wanted(Below(3));
    if (!Often()) request.set_codec("int8");
    return request.SerializeAsString();
  }

  std::string Fetch(const MemoryLink& link, uint64_t member) {
    v1::SubnetRequest request;
    Name(link, member, request.mutable_caller());
    request.set_round(Below(3));
    request.set_waits_only(Below(2) == 0);
    return request.SerializeAsString();
  }

  std::string Push(MemoryLink& link, uint64_t member) {
    const int64_t bytes = site_.thread->traits().slices.bytes();
    v1::PushChunk chunk;
    v1::PushHeader& header = *chunk.mutable_header();
    Name(link, member, header.mutable_caller());
    if (Often()) header.mutable_keys()->mutable_dense();
    if (Often()) header.set_payload_bytes(bytes);
    if (Often()) header.set_layout_hash(site_.thread->traits().layout_hash);
    if (Often()) header.set_kind(static_cast<v1::PayloadKind>(site_.job.recipe.payload));
    header.set_exchange(Below(3));
    const std::string payload(Often() ? static_cast<size_t>(bytes) : Below(256),
                              static_cast<char>(Below(64)));
    const std::vector<grpc::Slice> slices = {grpc::Slice(payload)};
    const auto shared = Below(2) == 0 ? link.Stage(slices) : std::nullopt;
    if (!shared.has_value()) {
      chunk.set_payload(payload);
      return chunk.SerializeAsString();
    }
    *chunk.mutable_shared() = *shared;
    if (!Often()) chunk.mutable_shared()->set_slot(static_cast<uint32_t>(Below(600)));
    if (!Often()) chunk.mutable_shared()->set_serial(Below(5));
    if (!Often()) chunk.mutable_shared()->set_buffer_bytes(static_cast<uint32_t>(Below(1 << 22)));
    return chunk.SerializeAsString();
  }

  Site& site_;
  std::mt19937_64 random_;
  std::vector<std::shared_ptr<MemoryLink>> links_;
  PacketReader reader_;
};

TEST_CASE("whatever members say by their links, others are served and nothing stays",
          "[rpc][memory]") {
  REQUIRE(SharedArena::Enable().ok());
  const std::vector<FuzzJob>& jobs = FuzzJobs();
  uint64_t accepted = 0;
  for (int seed = 1; seed <= kSeeds; ++seed) {
    INFO("seed " << seed);
    Site site(jobs[static_cast<size_t>(seed) % jobs.size()]);
    const ShardThread::View before = site.View();
    Speaker(&site, static_cast<uint64_t>(seed)).Run();
    // The links have ended with the speaker, which the server sees a little later.
    ShardThread::View after = site.View();
    const absl::Time end = SteadyNow() + kPatience;
    while (after.parked_reads > 0 || after.reserved_bytes > 0 ||
           !site.service->memory_members().empty()) {
      REQUIRE(SteadyNow() < end);
      absl::SleepFor(absl::Milliseconds(1));
      after = site.View();
    }
    accepted += after.counters.pushes - before.counters.pushes;
    if (after.counters.pushes == before.counters.pushes) {
      CHECK(after.parameters_hash == before.parameters_hash);
    }
    for (uint64_t member = 1; member <= kMembers; ++member) CHECK(site.IsServed(member));
  }
  // Not all of it was refused.
  CHECK(accepted > 10);
}

}  // namespace
}  // namespace tessera
