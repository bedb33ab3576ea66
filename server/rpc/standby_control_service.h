// The coordinator's end of hosts' connections (proto/replication.proto).
#ifndef TESSERA_SERVER_RPC_STANDBY_CONTROL_SERVICE_H_
#define TESSERA_SERVER_RPC_STANDBY_CONTROL_SERVICE_H_

#include "common/base/log_throttle.h"
#include "proto/replication.grpc.pb.h"
#include "server/rpc/live_coordinator.h"
#include "server/rpc/message_limits.h"

namespace tessera {

// Order at the end: GrpcServer::Shutdown, then this, then the coordinator.
class StandbyControlService final : public v1::StandbyControl::CallbackService {
 public:
  // `live` outlives this.
  explicit StandbyControlService(LiveCoordinator* live) : live_(live) {}

  grpc::ServerBidiReactor<v1::HostMessage, v1::HostOrder>* Attach(
      grpc::CallbackServerContext* context) override;

 private:
  LiveCoordinator* const live_;
  LogThrottle refused_{kRefusalsLogged, kRefusalsInterval};
};

}  // namespace tessera

#endif  // TESSERA_SERVER_RPC_STANDBY_CONTROL_SERVICE_H_
