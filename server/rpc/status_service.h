// Status and Admin over gRPC.
#ifndef TESSERA_SERVER_RPC_STATUS_SERVICE_H_
#define TESSERA_SERVER_RPC_STATUS_SERVICE_H_

#include <functional>

#include "absl/time/time.h"
#include "common/base/steady_clock.h"
#include "proto/status.grpc.pb.h"
#include "server/rpc/live_coordinator.h"
#include "server/rpc/shared_status.h"

namespace tessera {

// Bounds on StatusRequest.interval_ns, and its default.
constexpr absl::Duration kWatchIntervalMin = absl::Milliseconds(100);
constexpr absl::Duration kWatchIntervalMax = absl::Hours(1);
constexpr absl::Duration kWatchIntervalDefault = absl::Seconds(1);

// Watchers share statuses that are younger than this: each sees another one every time.
constexpr absl::Duration kWatchedAgeMax = absl::Milliseconds(50);
static_assert(kWatchedAgeMax < kWatchIntervalMin);

// `now` is asked from gRPC's threads and must not block for long: on server 0 the job's status, on
// another server its own counters (OwnStatus in attach_link.h). Get asks it, Watch every kWatchedAgeMax at most,
// for all who watch; it ends after a status whose state is "done".
class StatusService final : public v1::Status::CallbackService {
 public:
  explicit StatusService(std::function<v1::JobStatus()> now)
      : now_(std::move(now)), watched_(now_, kWatchedAgeMax, SteadyNow) {}

  grpc::ServerUnaryReactor* Get(grpc::CallbackServerContext* context,
                                const v1::StatusRequest* request, v1::JobStatus* reply) override;
  grpc::ServerWriteReactor<v1::JobStatus>* Watch(grpc::CallbackServerContext* context,
                                                 const v1::StatusRequest* request) override;

 private:
  const std::function<v1::JobStatus()> now_;
  SharedStatus watched_;
};

// On server 0 only.
class AdminService final : public v1::Admin::CallbackService {
 public:
  // `live` outlives it.
  explicit AdminService(LiveCoordinator* live) : live_(live) {}

  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context,
                                  const v1::AdminRequest* request, v1::AdminReply* reply) override;
  grpc::ServerUnaryReactor* Stop(grpc::CallbackServerContext* context,
                                 const v1::AdminRequest* request, v1::AdminReply* reply) override;
  grpc::ServerUnaryReactor* Checkpoint(grpc::CallbackServerContext* context,
                                       const v1::AdminRequest* request,
                                       v1::CheckpointReply* reply) override;

 private:
  LiveCoordinator* const live_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_RPC_STATUS_SERVICE_H_
