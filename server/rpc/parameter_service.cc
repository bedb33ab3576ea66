#include "server/rpc/parameter_service.h"

#include <utility>

#include "proto/parameter_server.grpc.pb.h"
#include "server/rpc/pull_call.h"
#include "server/rpc/push_call.h"

namespace tessera {
namespace {

using RawMethods =
    v1::ParameterServer::WithRawCallbackMethod_Pull<v1::ParameterServer::WithRawCallbackMethod_Push<
        v1::ParameterServer::WithRawCallbackMethod_FetchSubnet<v1::ParameterServer::Service>>>;

}  // namespace

class ParameterService::Service final : public RawMethods {
 public:
  explicit Service(DataPlanes* planes) : planes_(planes) {}

  grpc::ServerWriteReactor<grpc::ByteBuffer>* Pull(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request) override {
    return PullCall::Start(planes_, context, *request);
  }

  grpc::ServerReadReactor<grpc::ByteBuffer>* Push(grpc::CallbackServerContext* context,
                                                  grpc::ByteBuffer* reply) override {
    return PushCall::Start(planes_, context, reply);
  }

  grpc::ServerWriteReactor<grpc::ByteBuffer>* FetchSubnet(
      grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) override {
    return PullCall::StartFetch(planes_, context, *request);
  }

 private:
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

ParameterService::~ParameterService() = default;

grpc::Service* ParameterService::service() { return service_.get(); }

}  // namespace tessera
