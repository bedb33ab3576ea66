// All services of a server as they are served, over gRPC: any messages in any order, cut off anywhere.
// Afterwards the shard holds what it held, unless a push was accepted, and a good client is served.
//
//   input = job(1) (call(1) choices)*
//   call  = how(1) pieces                 a piece is a message; `how` says which of its fields are put right
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/base/check.h"
#include "common/rpc/control_protocol.h"
#include "common/rpc/grpc_server.h"
#include "proto/coordinator.grpc.pb.h"
#include "proto/parameter_server.grpc.pb.h"
#include "proto/status.grpc.pb.h"
#include "server/rpc/coordinator_service.h"
#include "server/rpc/followed_shards.h"
#include "server/rpc/live_coordinator.h"
#include "server/rpc/parameter_service.h"
#include "server/rpc/standby_control_service.h"
#include "server/rpc/standby_host.h"
#include "server/rpc/status_service.h"
#include "server/shard/shard_thread.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_job.h"
#include "tests/server/shard/thread_calls.h"

namespace tessera {
namespace {

// Longer is a call that nobody answers.
constexpr auto kCallLimit = std::chrono::seconds(20);
constexpr int kCallsMax = 12;

// A server of one job that lives as long as the process; only its shard is new for every input.
class Served {
 public:
  explicit Served(const FuzzJob& job) : job(job) {
    coordinator = LiveCoordinator::Create(job.facts).value();
    thread = std::make_unique<ShardThread>(job.MakeShard());
    parameters = std::make_unique<ParameterService>(thread.get(), job.digest, Generation(0));
    coordinator_service = std::make_unique<CoordinatorService>(coordinator.get());
    admin = std::make_unique<AdminService>(coordinator.get());
    status = std::make_unique<StatusService>([this] { return coordinator->Status(); });
    FollowedShards::Options followed;
    followed.job_digest = job.digest;
    followed.layout_hash = job.facts.layout_hash;
    followed.make_shard = [&job](ShardId) { return job.MakeShard(); };
    follows = std::make_unique<FollowedShards>(std::move(followed));
    follows->Follow(ShardId(0), 1);
    while (follows->PrepareOne()) {
    }
    standbys = std::make_unique<StandbyHost>(follows.get());
    hosts = std::make_unique<StandbyControlService>(coordinator.get());
    auto started =
        GrpcServer::Start({"127.0.0.1:0",
                           {parameters->service(), coordinator_service.get(), admin.get(),
                            status.get(), standbys->service(), hosts.get()}});
    TESSERA_CHECK(started.ok());
    server = *std::move(started);
    channel = grpc::CreateChannel(server->address(), grpc::InsecureChannelCredentials());
    SetPlan(*thread, FuzzPlan(1, 2));
  }
  ~Served() { server->Shutdown(absl::ZeroDuration()); }

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

  const FuzzJob& job;
  std::unique_ptr<LiveCoordinator> coordinator;
  std::unique_ptr<ShardThread> thread;
  std::unique_ptr<ParameterService> parameters;
  std::unique_ptr<CoordinatorService> coordinator_service;
  std::unique_ptr<AdminService> admin;
  std::unique_ptr<StatusService> status;
  std::unique_ptr<FollowedShards> follows;
  std::unique_ptr<StandbyHost> standbys;
  std::unique_ptr<StandbyControlService> hosts;
  std::unique_ptr<GrpcServer> server;
  std::shared_ptr<grpc::Channel> channel;
};

grpc::ByteBuffer Bytes(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

const char* const kUnary[] = {
    "/tessera.v1.Coordinator/Join",
    "/tessera.v1.Coordinator/Renew",
    "/tessera.v1.Coordinator/BeginTraining",
    "/tessera.v1.Coordinator/BeginEpoch",
    "/tessera.v1.Coordinator/Leave",
    "/tessera.v1.Coordinator/Saved",
    "/tessera.v1.Coordinator/Evaluate",
    "/tessera.v1.Status/Get",
    "/tessera.v1.Status/Events",
    "/tessera.v1.Admin/Drain",
    "/tessera.v1.Admin/Checkpoint",
    "/tessera.v1.ParameterServer/Pull",
    "/tessera.v1.ParameterServer/FetchSubnet",
    "/tessera.v1.Status/Watch",
    "/tessera.v1.NoService/NoMethod",
    "/tessera.v1.Admin/Stop",
};

const char* const kStreams[] = {
    "/tessera.v1.Replication/Follow",
    "/tessera.v1.StandbyControl/Attach",
    "/tessera.v1.Coordinator/Attach",
};

class Calls {
 public:
  Calls(Served* served, FuzzInput* input) : served_(*served), in_(*input) {}

  void Run() {
    const ShardThread::View before = served_.View();
    for (int calls = 0; !in_.ended() && calls < kCallsMax; ++calls) {
      const uint8_t call = in_.Byte();
      if (call >= 224) {
        Stream();
      } else {
        call % 3 == 0 ? Raw() : Push();
      }
    }
    const ShardThread::View after = served_.View();
    if (after.counters.pushes == before.counters.pushes) {
      TESSERA_CHECK(after.parameters_hash == before.parameters_hash);
    }
    // Calls that were cut off leave nothing behind.
    TESSERA_CHECK(after.counters.staged_bytes == 0 || after.counters.pushes > 0);
    CheckPlacesGivenBack();
    Pull();
  }

 private:
  // Any bytes to any method, once or as a stream; the answers are read, or not.
  void Raw() {
    const std::string method = kUnary[in_.Below(std::size(kUnary))];
    const bool leaves = in_.Bit();
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kCallLimit);
    grpc::GenericStub stub(served_.channel);
    grpc::CompletionQueue queue;
    const auto call = stub.PrepareCall(&context, method, &queue);
    call->StartCall(Tag(1));
    Await(&queue);
    std::string message = Filled(method, std::string(in_.Piece()));
    call->Write(Bytes(message), grpc::WriteOptions().set_last_message(), Tag(2));
    // A read may wait for others for ever: it is cut off.
    bool written = Await(&queue);
    if (written && !leaves && !Waits(method)) {
      grpc::ByteBuffer answer;
      call->Read(&answer, Tag(3));
      Await(&queue);
    }
    if (leaves || Waits(method)) context.TryCancel();
    grpc::Status status;
    call->Finish(&status, Tag(4));
    Await(&queue);
    TESSERA_CHECK(status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED);
    queue.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue.Next(&tag, &ok)) {
    }
  }

  std::string Said(const std::string& method, const std::string& bytes) {
    if (!in_.Bit()) return bytes;
    if (method == kStreams[0]) {
      return With<v1::LogChunk>(bytes, [](const FuzzJob& job, v1::LogChunk* chunk) {
        if (!chunk->has_header()) return;
        chunk->mutable_header()->set_job_digest(job.digest);
        chunk->mutable_header()->set_layout_hash(job.facts.layout_hash);
        chunk->mutable_header()->set_term(1);
      });
    }
    if (method == kStreams[1]) {
      return With<v1::HostMessage>(bytes, [](const FuzzJob& job, v1::HostMessage* message) {
        if (!message->has_hello()) return;
        message->mutable_hello()->set_job_digest(job.digest);
        message->mutable_hello()->set_layout_hash(job.facts.layout_hash);
      });
    }
    return With<v1::ShardMessage>(bytes, [](const FuzzJob& job, v1::ShardMessage* message) {
      if (!message->has_hello()) return;
      message->mutable_hello()->set_job_digest(job.digest);
      message->mutable_hello()->set_layout_hash(job.facts.layout_hash);
    });
  }

  // Some messages to one that answers as it likes; then the stream ends, or is cut off.
  void Stream() {
    const std::string method = kStreams[in_.Below(std::size(kStreams))];
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kCallLimit);
    grpc::GenericStub stub(served_.channel);
    grpc::CompletionQueue queue;
    const auto call = stub.PrepareCall(&context, method, &queue);
    call->StartCall(Tag(1));
    Await(&queue);
    bool open = true;
    for (uint64_t left = in_.Below(5); left > 0 && open; --left) {
      call->Write(Bytes(Said(method, std::string(in_.Piece()))), Tag(2));
      open = Await(&queue);
    }
    if (in_.Bit()) {
      context.TryCancel();
    } else if (open) {
      call->WritesDone(Tag(3));
      Await(&queue);
      // Whoever has said all is told that it is over.
      grpc::ByteBuffer answer;
      for (bool more = true; more;) {
        call->Read(&answer, Tag(5));
        more = Await(&queue);
      }
    }
    grpc::Status status;
    call->Finish(&status, Tag(4));
    Await(&queue);
    TESSERA_CHECK(status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED);
    queue.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue.Next(&tag, &ok)) {
    }
  }

  static void* Tag(intptr_t number) { return reinterpret_cast<void*>(number); }
  static bool Await(grpc::CompletionQueue* queue) {
    void* tag = nullptr;
    bool ok = false;
    TESSERA_CHECK(
        queue->AsyncNext(&tag, &ok,
                         std::chrono::system_clock::now() + kCallLimit + std::chrono::seconds(5)) ==
        grpc::CompletionQueue::GOT_EVENT);
    return ok;
  }
  static bool Waits(const std::string& method) {
    return method == kUnary[6] || method == kUnary[10] || method == kUnary[11] ||
           method == kUnary[12];
  }

  template <typename Message>
  std::string With(const std::string& bytes, void (*put_right)(const FuzzJob&, Message*)) {
    Message message;
    if (!message.ParseFromString(bytes)) return bytes;
    put_right(served_.job, &message);
    return message.SerializeAsString();
  }

  std::string Filled(const std::string& method, const std::string& bytes) {
    if (!in_.Bit()) return bytes;
    const auto caller = [](const FuzzJob& job, v1::Caller* caller) {
      caller->set_job_digest(job.digest);
      if (caller->member() == 0) caller->set_member(1);
    };
    static const auto fill = caller;
    if (method == kUnary[0]) {
      return With<v1::JoinRequest>(bytes, [](const FuzzJob& job, v1::JoinRequest* request) {
        request->set_job_digest(job.digest);
        request->set_protocol(kControlProtocol);
      });
    }
    if (method == kUnary[10]) {
      return With<v1::PullRequest>(bytes, [](const FuzzJob& job, v1::PullRequest* request) {
        fill(job, request->mutable_caller());
      });
    }
    if (method == kUnary[11]) {
      return With<v1::SubnetRequest>(bytes, [](const FuzzJob& job, v1::SubnetRequest* request) {
        fill(job, request->mutable_caller());
      });
    }
    return bytes;
  }

  v1::PushHeader Header() {
    v1::PushHeader header;
    const absl::string_view piece = in_.Piece();
    if (!header.ParseFromArray(piece.data(), static_cast<int>(piece.size()))) header.Clear();
    const uint8_t how = in_.Byte();
    if ((how & 1) != 0) {
      header.mutable_caller()->set_job_digest(served_.job.digest);
      header.mutable_caller()->set_member(1 + (how >> 7));
    }
    if ((how & 2) != 0) header.mutable_keys()->mutable_dense();
    if ((how & 4) != 0) header.set_payload_bytes(served_.thread->traits().slices.bytes());
    if ((how & 8) != 0) header.set_layout_hash(served_.thread->traits().layout_hash);
    if ((how & 16) != 0) {
      header.set_kind(static_cast<v1::PayloadKind>(served_.job.recipe.payload));
    }
    if ((how & 32) != 0) header.set_exchange(1 + in_.Below(3));
    return header;
  }

  // A stream of chunks, raw or with a header, that ends or is cut off.
  void Push() {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kCallLimit);
    grpc::GenericStub stub(served_.channel);
    grpc::CompletionQueue queue;
    const auto call = stub.PrepareCall(&context, "/tessera.v1.ParameterServer/Push", &queue);
    call->StartCall(Tag(1));
    Await(&queue);
    const uint64_t chunks = in_.Below(4);
    bool open = true;
    for (uint64_t i = 0; i < chunks && open; ++i) {
      std::string bytes;
      if (in_.Bit()) {
        bytes = std::string(in_.Piece());
      } else {
        v1::PushChunk chunk;
        if (i == 0) *chunk.mutable_header() = Header();
        const size_t size = in_.Below(256);
        chunk.set_payload(std::string(size, static_cast<char>(in_.Byte() & 0x3f)));
        bytes = chunk.SerializeAsString();
      }
      call->Write(Bytes(bytes), Tag(2));
      open = Await(&queue);
    }
    const uint8_t end = in_.Byte();
    if (end % 4 == 0) {
      context.TryCancel();
    } else if (open) {
      call->WritesDone(Tag(3));
      Await(&queue);
    }
    grpc::Status status;
    call->Finish(&status, Tag(4));
    Await(&queue);
    TESSERA_CHECK(status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED);
    if (!status.ok()) TESSERA_CHECK(!status.error_message().empty());
    queue.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue.Next(&tag, &ok)) {
    }
  }

  // The places of pushes that have ended, however they did: the server hears of a call's end after its caller.
  void CheckPlacesGivenBack() {
    const auto end = std::chrono::steady_clock::now() + kCallLimit;
    while (served_.View().reserved_bytes != 0) {
      TESSERA_CHECK(std::chrono::steady_clock::now() < end);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  // As evaluations read: never waits.
  void Pull() {
    const auto stub = v1::ParameterServer::NewStub(served_.channel);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kCallLimit);
    v1::PullRequest request;
    request.mutable_caller()->set_job_digest(served_.job.digest);
    request.mutable_caller()->set_member(1);
    request.mutable_keys()->mutable_dense();
    request.set_outside_exchange(true);
    const auto reader = stub->Pull(&context, request);
    size_t received = 0;
    for (v1::Chunk chunk; reader->Read(&chunk);) received += chunk.payload().size();
    TESSERA_CHECK(reader->Finish().ok());
    TESSERA_CHECK(received == static_cast<size_t>(served_.thread->traits().slices.bytes()));
  }

  Served& served_;
  FuzzInput& in_;
};

}  // namespace
}  // namespace tessera

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  FuzzInput input(data, size);
  const std::vector<FuzzJob>& jobs = FuzzJobs();
  Served served(jobs[input.Below(jobs.size())]);
  Calls(&served, &input).Run();
  return 0;
}
