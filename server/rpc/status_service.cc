#include "server/rpc/status_service.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include <grpcpp/alarm.h>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/status.h"
#include "server/rpc/message_limits.h"

namespace tessera {
namespace {

absl::Duration IntervalOf(const v1::StatusRequest& request) {
  if (request.interval_ns() <= 0) return kWatchIntervalDefault;
  return std::clamp(absl::Nanoseconds(request.interval_ns()), kWatchIntervalMin, kWatchIntervalMax);
}

// One watcher. A timer wakes it for the next status. Deletes itself when call and timer are both
// over.
class WatchCall final : public grpc::ServerWriteReactor<v1::JobStatus> {
 public:
  WatchCall(SharedStatus* watched, absl::Duration interval)
      : watched_(watched), interval_(interval) {
    absl::MutexLock lock(&mutex_);
    Write();
  }

  void OnWriteDone(bool ok) override {
    {
      absl::MutexLock lock(&mutex_);
      if (ok && !cancelled_ && status_->state() != "done") {
        timer_set_ = true;
        timer_.Set(std::chrono::system_clock::now() + absl::ToChronoNanoseconds(interval_),
                   [this](bool) { OnTimer(); });
        return;
      }
    }
    Finish(grpc::Status::OK);  // After this the call may be gone.
  }

  void OnCancel() override {
    absl::MutexLock lock(&mutex_);
    cancelled_ = true;
    if (timer_set_) timer_.Cancel();
  }

  void OnDone() override { delete this; }

 private:
  // The call is not over before this has run: nothing else ends it while the timer is set.
  void OnTimer() {
    {
      absl::MutexLock lock(&mutex_);
      timer_set_ = false;
      if (!cancelled_) {
        Write();
        return;
      }
    }
    Finish(grpc::Status::OK);
  }

  void Write() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    status_ = watched_->Get();
    StartWrite(status_.get());
  }

  SharedStatus* const watched_;
  const absl::Duration interval_;
  absl::Mutex mutex_;
  std::shared_ptr<const v1::JobStatus> status_ ABSL_GUARDED_BY(mutex_);  // until it is written
  grpc::Alarm timer_ ABSL_GUARDED_BY(mutex_);
  bool timer_set_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

grpc::ServerUnaryReactor* Done(grpc::CallbackServerContext* context,
                               const absl::Status& status = absl::OkStatus()) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(status));
  return reactor;
}

// Ends with what event(coordinator, now) says, once that is kept.
template <typename Event>
grpc::ServerUnaryReactor* Ask(LiveCoordinator* live, grpc::CallbackServerContext* context,
                              Event event) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  live->Ask(0, event, [reactor](const absl::Status& status) { reactor->Finish(ToGrpc(status)); });
  return reactor;
}

}  // namespace

grpc::ServerUnaryReactor* StatusService::Get(grpc::CallbackServerContext* context,
                                             const v1::StatusRequest* request,
                                             v1::JobStatus* reply) {
  *reply = now_();
  return Done(context);
}

grpc::ServerWriteReactor<v1::JobStatus>* StatusService::Watch(grpc::CallbackServerContext* context,
                                                              const v1::StatusRequest* request) {
  return new WatchCall(&watched_, IntervalOf(*request));
}

grpc::ServerUnaryReactor* AdminService::Drain(grpc::CallbackServerContext* context,
                                              const v1::AdminRequest* request,
                                              v1::AdminReply* reply) {
  const absl::Status texts = CheckTexts(*request);
  if (!texts.ok()) return Done(context, texts);
  return Ask(live_, context, [&](Coordinator& coordinator, absl::Time now) {
    coordinator.Drain(request->reason(), now);
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* AdminService::Stop(grpc::CallbackServerContext* context,
                                             const v1::AdminRequest* request,
                                             v1::AdminReply* reply) {
  const absl::Status texts = CheckTexts(*request);
  if (!texts.ok()) return Done(context, texts);
  return Ask(live_, context, [&](Coordinator& coordinator, absl::Time now) {
    if (request->is_failure()) {
      coordinator.Fail(request->reason().empty() ? "no reason given" : request->reason(), now);
    } else {
      coordinator.Stop(request->reason(), now);
    }
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* AdminService::Checkpoint(grpc::CallbackServerContext* context,
                                                   const v1::AdminRequest* request,
                                                   v1::CheckpointReply* reply) {
  const absl::Status texts = CheckTexts(*request);
  if (!texts.ok()) return Done(context, texts);
  return Ask(live_, context, [&](Coordinator& coordinator, absl::Time now) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(const uint64_t number, coordinator.Checkpoint(request->reason(), now));
    reply->set_number(number);
    return absl::OkStatus();
  });
}

}  // namespace tessera
