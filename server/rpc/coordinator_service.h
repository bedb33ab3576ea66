// Coordinator over gRPC: every call becomes an event of the one coordinator. No thread waits for
// anything.
#ifndef TESSERA_SERVER_RPC_COORDINATOR_SERVICE_H_
#define TESSERA_SERVER_RPC_COORDINATOR_SERVICE_H_

#include <string>

#include "absl/status/status.h"
#include "common/base/log_throttle.h"
#include "proto/coordinator.grpc.pb.h"
#include "server/rpc/live_coordinator.h"
#include "server/rpc/message_limits.h"

namespace tessera {

// Calls come on gRPC's threads. An attached server's connection stays open until the server ends it
// or is refused.
class CoordinatorService final : public v1::Coordinator::CallbackService {
 public:
  // `live` outlives it.
  explicit CoordinatorService(LiveCoordinator* live) : live_(live) {}

  grpc::ServerBidiReactor<v1::ShardMessage, v1::PlanMessage>* Attach(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* Join(grpc::CallbackServerContext* context,
                                 const v1::JoinRequest* request, v1::JoinReply* reply) override;
  grpc::ServerUnaryReactor* Renew(grpc::CallbackServerContext* context,
                                  const v1::RenewRequest* request, v1::RenewReply* reply) override;
  grpc::ServerUnaryReactor* BeginTraining(grpc::CallbackServerContext* context,
                                          const v1::BeginTrainingRequest* request,
                                          v1::BeginTrainingReply* reply) override;
  grpc::ServerUnaryReactor* BeginEpoch(grpc::CallbackServerContext* context,
                                       const v1::BeginEpochRequest* request,
                                       v1::EpochCut* reply) override;
  grpc::ServerUnaryReactor* Evaluate(grpc::CallbackServerContext* context,
                                     const v1::EvaluateRequest* request,
                                     v1::EvaluateReply* reply) override;
  grpc::ServerUnaryReactor* Leave(grpc::CallbackServerContext* context,
                                  const v1::LeaveRequest* request, v1::LeaveReply* reply) override;
  grpc::ServerUnaryReactor* Saved(grpc::CallbackServerContext* context,
                                  const v1::SavedRequest* request, v1::SavedReply* reply) override;

 private:
  // Whoever looks at this server's log for a worker that does not come finds why.
  void TellRefused(const std::string& peer, const v1::JoinRequest& request,
                   const absl::Status& why);

  LiveCoordinator* const live_;
  LogThrottle refused_workers_{kRefusalsLogged, kRefusalsInterval};
  LogThrottle refused_servers_{kRefusalsLogged, kRefusalsInterval};
};

}  // namespace tessera

#endif  // TESSERA_SERVER_RPC_COORDINATOR_SERVICE_H_
