#include "server/rpc/parameter_service.h"

#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/steady_clock.h"
#include "common/rpc/status.h"
#include "common/rpc/striping/striping.h"
#include "common/rpc/windows.h"
#include "proto/parameter_server.grpc.pb.h"
#include "server/rpc/grpc_streams.h"
#include "server/rpc/pull_call.h"
#include "server/rpc/push_call.h"
#include "server/rpc/striped_calls.h"

namespace tessera {
namespace {

using RawMethods =
    v1::ParameterServer::WithRawCallbackMethod_Pull<v1::ParameterServer::WithRawCallbackMethod_Push<
        v1::ParameterServer::WithRawCallbackMethod_FetchSubnet<
            v1::ParameterServer::WithRawCallbackMethod_Stripe<
                v1::ParameterServer::WithCallbackMethod_ShareMemory<
                    v1::ParameterServer::Service>>>>>;

// The connection's part in a striped call; nullopt: the call has one connection.
absl::StatusOr<std::optional<StripeName>> StripeOf(const grpc::CallbackServerContext& context) {
  const auto found = context.client_metadata().find(kStripeKey);
  if (found == context.client_metadata().end()) return std::nullopt;
  TESSERA_ASSIGN_OR_RETURN(StripeName name,
                           ParseStripeName({found->second.data(), found->second.size()}));
  return std::optional<StripeName>(std::move(name));
}

// What a stream tells that is ended at once.
class Refused final : public StreamEvents {
 public:
  void OnCancel() override {}
  void OnDone() override {}
};

// Gives a member the number of a link, which it then brings to the door.
absl::Status Invite(const DataPlanes& planes, const v1::ShareMemoryRequest& request,
                    v1::ShareMemoryReply* reply) {
  const std::string where = absl::StrCat("shared memory for member ", request.caller().member());
  MemoryDoor* const door = planes.door();
  if (door == nullptr) {
    return absl::UnimplementedError(absl::StrCat(where, ": this server shares none"));
  }
  TESSERA_ASSIGN_OR_RETURN(DataPlane* const plane, planes.Find(where, request.caller()));
  TESSERA_RETURN_IF_ERROR(plane->CheckCaller(where, request.caller()));
  // The name has the machine's start in it: no two machines have the same.
  if (SteadyClockName().empty() || request.machine() != SteadyClockName()) {
    return absl::FailedPreconditionError(absl::StrCat(
        where, ": is on another machine, or in another container with a clock of its own"));
  }
  reply->set_socket(door->socket());
  reply->set_link(door->Expect(request.caller().member()));
  return absl::OkStatus();
}

}  // namespace

class ParameterService::Service final : public RawMethods {
 public:
  explicit Service(DataPlanes* planes)
      : planes_(planes),
        striped_calls_(planes->half_open_pushes().most() * static_cast<size_t>(kStripesMax)) {}

  grpc::ServerWriteReactor<grpc::ByteBuffer>* Pull(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request) override {
    return Pull(context, *request, &PullCall::Start);
  }

  grpc::ServerReadReactor<grpc::ByteBuffer>* Push(grpc::CallbackServerContext* context,
                                                  grpc::ByteBuffer* reply) override {
    auto* const stream = new GrpcReadStream(context, reply);  // until its OnDone
    Serve<PushCall>(*context, stream, Striped::kReads, [](PushCall* call) { call->Start(); });
    return stream;
  }

  grpc::ServerWriteReactor<grpc::ByteBuffer>* FetchSubnet(
      grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) override {
    return Pull(context, *request, &PullCall::StartFetch);
  }

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Stripe(
      grpc::CallbackServerContext* context) override {
    auto* const stream = new GrpcStripeStream(context);  // until its OnDone
    absl::StatusOr<std::optional<StripeName>> name = StripeOf(*context);
    if (name.ok() && (!name->has_value() || (*name)->number == 0)) {
      name = absl::InvalidArgumentError(
          absl::StrCat(kStripeKey, ": names no further connection of a call, want 1 or above"));
    }
    if (!name.ok()) {
      Refuse(stream, name.status());
      return stream;
    }
    const auto stripe = std::make_shared<tessera::Stripe>(&striped_calls_, **name, stream, nullptr);
    stream->Serve(stripe);
    striped_calls_.Join(stripe);
    return stream;
  }

  grpc::ServerUnaryReactor* ShareMemory(grpc::CallbackServerContext* context,
                                        const v1::ShareMemoryRequest* request,
                                        v1::ShareMemoryReply* reply) override {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(ToGrpc(Invite(*planes_, *request, reply)));
    return reactor;
  }

 private:
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Pull(
      grpc::CallbackServerContext* context, const grpc::ByteBuffer& request,
      void (PullCall::*start)(const grpc::ByteBuffer& request)) {
    auto* const stream = new GrpcWriteStream(context);  // until its OnDone
    Serve<PullCall>(*context, stream, Striped::kWrites,
                    [&request, start](PullCall* call) { (call->*start)(request); });
    return stream;
  }

  // Begins a call on the stream, or on the connections of which it is the first.
  template <typename Call, typename Stream, typename Start>
  void Serve(const grpc::CallbackServerContext& context, Stream* stream, Striped striped,
             Start start) {
    absl::StatusOr<std::optional<StripeName>> name = StripeOf(context);
    if (name.ok() && name->has_value() && (*name)->number != 0) {
      name = absl::InvalidArgumentError(
          absl::StrCat(kStripeKey, ": is number ", (*name)->number, ", want 0 with a call"));
    }
    if (!name.ok()) return Refuse(stream, name.status());
    if (!name->has_value()) {
      const auto call = std::make_shared<Call>(planes_, stream);
      stream->Serve(call);
      return start(call.get());
    }
    // The call asks its connections as it would ask one.
    const auto all =
        std::make_shared<StripedStream>(&striped_calls_, *std::move(*name), striped, stream);
    const auto call = std::make_shared<Call>(planes_, all.get());
    all->Serve(call);
    stream->Serve(std::make_shared<tessera::Stripe>(&striped_calls_, all->name(), stream, all));
    const absl::Status status = striped_calls_.Open(all);
    if (!status.ok()) return all->End(status);
    start(call.get());
  }

  template <typename Stream>
  static void Refuse(Stream* stream, const absl::Status& status) {
    stream->Serve(std::make_shared<Refused>());
    stream->End(status);
  }

  DataPlanes* const planes_;
  StripedCalls striped_calls_;
};

ParameterService::ParameterService(ShardId own, std::string job_digest,
                                   int64_t half_open_pushes_per_host, int64_t unread_bytes_per_host)
    : planes_(own, std::move(job_digest), half_open_pushes_per_host, unread_bytes_per_host),
      service_(std::make_unique<Service>(&planes_)) {}

ParameterService::ParameterService(ShardThread* shard, std::string job_digest,
                                   Generation generation, int64_t half_open_pushes_per_host,
                                   int64_t unread_bytes_per_host)
    : ParameterService(shard->traits().slices.shard, std::move(job_digest),
                       half_open_pushes_per_host, unread_bytes_per_host) {
  planes_.SetGeneration(generation);
  planes_.Add(shard);
}

ParameterService::~ParameterService() { EndLocalCalls(); }

absl::Status ParameterService::ShareMemory() { return planes_.ShareMemory(&local_calls_); }

void ParameterService::EndLocalCalls() {
  if (planes_.door() == nullptr) return;
  // First the door, whose thread begins calls and cancels them.
  planes_.door()->Close();
  local_calls_.End();
}

grpc::Service* ParameterService::service() { return service_.get(); }

}  // namespace tessera
