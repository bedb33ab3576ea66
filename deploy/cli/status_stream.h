// A running job's status as it changes, read in the background.
#ifndef TESSERA_DEPLOY_CLI_STATUS_STREAM_H_
#define TESSERA_DEPLOY_CLI_STATUS_STREAM_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/status.grpc.pb.h"

namespace tessera {

// Any thread may ask.
class StatusStream {
 public:
  // Follows the server at `address`, one status per `interval`. One that cannot be reached is tried for
  // `patience`: the machine may have much else to do. Certificates that do not fit are no matter of patience. With
  // `recent_history` statuses have the newest evaluations alone.
  StatusStream(const std::string& address, absl::Duration interval,
               absl::Duration patience = absl::ZeroDuration(), bool recent_history = false);
  // Ends the call to the server.
  ~StatusStream();

  // The newest status, if there was one yet.
  std::optional<v1::JobStatus> latest() const;
  // The number of statuses that came.
  uint64_t received() const;
  // Set once the server has ended the stream, or cannot be reached: kFailedPrecondition where the certificates are why.
  std::optional<absl::Status> ended() const;
  // Asks the server to end the job after the exchange in progress.
  absl::Status Drain(const std::string& reason);
  // Asks the server to fail the job now, as it cannot go on, and why.
  absl::Status Fail(const std::string& reason);

 private:
  using AdminCall = grpc::Status (v1::Admin::Stub::*)(grpc::ClientContext*, const v1::AdminRequest&,
                                                      v1::AdminReply*);

  absl::Status Ask(AdminCall call, const v1::AdminRequest& request);
  void Follow(const v1::StatusRequest& request, absl::Duration patience);

  const std::string address_;
  const std::shared_ptr<grpc::Channel> channel_;
  grpc::ClientContext context_;
  std::atomic<bool> ending_{false};
  mutable absl::Mutex mutex_;
  std::optional<v1::JobStatus> latest_ ABSL_GUARDED_BY(mutex_);
  uint64_t received_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<absl::Status> ended_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_STATUS_STREAM_H_
