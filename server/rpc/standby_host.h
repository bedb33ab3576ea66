// Takes the logs of the shards that this process follows from their leaders (proto/replication.proto).
#ifndef TESSERA_SERVER_RPC_STANDBY_HOST_H_
#define TESSERA_SERVER_RPC_STANDBY_HOST_H_

#include <memory>

#include <grpcpp/impl/codegen/service_type.h>

#include "server/rpc/followed_shards.h"

namespace tessera {

class StandbyHost {
 public:
  // `shards` must outlive this.
  explicit StandbyHost(FollowedShards* shards);
  ~StandbyHost();

  // Answers Replication. Order at the end: GrpcServer::Shutdown, then this.
  grpc::Service* service();

 private:
  class Service;

  const std::unique_ptr<Service> service_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_RPC_STANDBY_HOST_H_
