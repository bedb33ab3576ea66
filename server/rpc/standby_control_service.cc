#include "server/rpc/standby_control_service.h"

#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/log.h"
#include "common/rpc/status.h"
#include "server/rpc/message_limits.h"

namespace tessera {
namespace {

// One attached host. Deletes itself when the call is over.
class HostCall final : public grpc::ServerBidiReactor<v1::HostMessage, v1::HostOrder> {
 public:
  HostCall(LiveCoordinator* live, grpc::CallbackServerContext* context)
      : live_(live), context_(context) {
    StartRead(&incoming_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      if (hello_) live_->DetachHost(*hello_, this);
      {
        absl::MutexLock lock(&mutex_);
        finished_ = true;
      }
      Finish(grpc::Status::OK);  // After this the call may be gone.
      return;
    }
    if (!hello_) {
      if (!Register()) return;
    } else if (!CheckTexts(incoming_).ok()) {
      context_->TryCancel();  // No server of ours.
    } else {
      live_->OnHostMessage(*hello_, this, incoming_);
    }
    incoming_.Clear();
    StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    absl::MutexLock lock(&mutex_);
    writing_ = false;
    if (ok) WriteNext();
  }

  void OnDone() override { delete this; }

 private:
  // False: the host was refused.
  bool Register() {
    absl::Status attached =
        incoming_.has_hello()
            ? CheckTexts(incoming_)
            : absl::InvalidArgumentError("attach: first message has no hello, want one");
    if (attached.ok()) {
      attached = live_->AttachHost(incoming_.hello(), this,
                                   [this](const v1::HostOrder* order) { Send(order); });
    }
    if (attached.ok()) {
      hello_ = incoming_.hello();
      return true;
    }
    if (absl::IsUnavailable(attached)) {
      Finish(ToGrpc(attached));  // The coordinator is elsewhere.
      return false;
    }
    Log(LogLevel::kWarning, absl::StrCat("standby: host refused why=\"", attached.message(), "\""));
    order_.set_refuse(std::string(attached.message()));
    // Nothing was registered, so nobody else writes.
    StartWriteAndFinish(&order_, grpc::WriteOptions(), ToGrpc(attached));
    return false;
  }

  // An order has all roles: a later one says all that an earlier one did.
  void Send(const v1::HostOrder* order) {
    absl::MutexLock lock(&mutex_);
    if (finished_) return;
    if (order == nullptr) {
      context_->TryCancel();
      return;
    }
    const bool was_refused = next_.has_value() && !next_->refuse().empty();
    if (!was_refused) next_ = *order;
    if (!writing_) WriteNext();
  }

  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!next_ || finished_) return;
    writing_ = true;
    order_ = *std::exchange(next_, std::nullopt);
    StartWrite(&order_);
  }

  LiveCoordinator* const live_;
  grpc::CallbackServerContext* const context_;
  v1::HostMessage incoming_;
  std::optional<v1::HostHello> hello_;  // read by OnReadDone only
  absl::Mutex mutex_;
  v1::HostOrder order_;
  std::optional<v1::HostOrder> next_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

grpc::ServerBidiReactor<v1::HostMessage, v1::HostOrder>* StandbyControlService::Attach(
    grpc::CallbackServerContext* context) {
  return new HostCall(live_, context);
}

}  // namespace tessera
