// Status and Admin over gRPC.
#ifndef TESSERA_SERVER_RPC_STATUS_SERVICE_H_
#define TESSERA_SERVER_RPC_STATUS_SERVICE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "absl/time/time.h"
#include "proto/status.grpc.pb.h"
#include "server/rpc/live_coordinator.h"
#include "server/rpc/status_readers.h"

namespace tessera {

// Bounds on StatusRequest.interval_ns, and its default.
constexpr absl::Duration kWatchIntervalMin = absl::Milliseconds(100);
constexpr absl::Duration kWatchIntervalMax = absl::Hours(1);
constexpr absl::Duration kWatchIntervalDefault = absl::Seconds(1);

// Watchers share statuses that are younger than this: each sees another one every time.
constexpr absl::Duration kWatchedAgeMax = absl::Milliseconds(50);
static_assert(kWatchedAgeMax < kWatchIntervalMin);

// Get and Watch send the bytes that StatusReaders has for all; Events has the same limits.
using RawStatusMethods =
    v1::Status::WithRawCallbackMethod_Get<v1::Status::WithRawCallbackMethod_Watch<
        v1::Status::WithRawCallbackMethod_Events<v1::Status::Service>>>;

// What has happened behind an event's number; nullopt: the coordinator is elsewhere.
using EventsAfter = std::function<std::optional<v1::EventsReply>(uint64_t)>;

// `now` is asked from gRPC's threads and must not block for long: on server 0 the job's status, on
// another server its own counters (OwnStatus in attach_link.h). Get asks it, Watch every kWatchedAgeMax at most,
// for all who watch; both more seldom where that takes long. Watch ends after a status whose state is "done".
// `events` is asked as `now` is; nullptr: there are none here.
class StatusService final : public RawStatusMethods {
 public:
  explicit StatusService(std::function<v1::JobStatus()> now, StatusLimits limits = {},
                         EventsAfter events = nullptr)
      : readers_(std::move(now), limits), events_(std::move(events)) {}

  grpc::ServerUnaryReactor* Get(grpc::CallbackServerContext* context,
                                const grpc::ByteBuffer* request, grpc::ByteBuffer* reply) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Watch(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* Events(grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* reply) override;

  const StatusReaders& readers() const { return readers_; }

 private:
  StatusReaders readers_;
  const EventsAfter events_;
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
