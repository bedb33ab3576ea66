#include "server/rpc/parameter_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/steady_clock.h"
#include "common/rpc/status.h"
#include "proto/parameter_server.grpc.pb.h"
#include "server/rpc/grpc_streams.h"
#include "server/rpc/pull_call.h"
#include "server/rpc/push_call.h"

namespace tessera {
namespace {

using RawMethods =
    v1::ParameterServer::WithRawCallbackMethod_Pull<v1::ParameterServer::WithRawCallbackMethod_Push<
        v1::ParameterServer::WithRawCallbackMethod_FetchSubnet<
            v1::ParameterServer::WithCallbackMethod_ShareMemory<v1::ParameterServer::Service>>>>;

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
  explicit Service(DataPlanes* planes) : planes_(planes) {}

  grpc::ServerWriteReactor<grpc::ByteBuffer>* Pull(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request) override {
    return Pull(context, *request, &PullCall::Start);
  }

  grpc::ServerReadReactor<grpc::ByteBuffer>* Push(grpc::CallbackServerContext* context,
                                                  grpc::ByteBuffer* reply) override {
    auto* const stream = new GrpcReadStream(context, reply);  // until its OnDone
    const auto call = std::make_shared<PushCall>(planes_, stream);
    stream->Serve(call);
    call->Start();
    return stream;
  }

  grpc::ServerWriteReactor<grpc::ByteBuffer>* FetchSubnet(
      grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) override {
    return Pull(context, *request, &PullCall::StartFetch);
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
    const auto call = std::make_shared<PullCall>(planes_, stream);
    stream->Serve(call);
    ((*call).*start)(request);
    return stream;
  }

  DataPlanes* const planes_;
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
