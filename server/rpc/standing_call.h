// The coordinator's end of a standing connection: a server's, or a host's.
//
//   first     its hello: it is attached, or refused with the reason in a message. Where the coordinator is
//             elsewhere the call ends with UNAVAILABLE
//   then      what it says, as it comes; what it is told, in order
//   the end   it is detached
#ifndef TESSERA_SERVER_RPC_STANDING_CALL_H_
#define TESSERA_SERVER_RPC_STANDING_CALL_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>

#include <grpcpp/support/server_callback.h>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/log.h"
#include "common/base/log_throttle.h"
#include "common/base/steady_clock.h"
#include "common/base/utf8.h"
#include "common/rpc/status.h"
#include "server/rpc/live_coordinator.h"
#include "server/rpc/message_limits.h"

namespace tessera {

// `Peer` has
//   Incoming, Outgoing, Hello    messages; an Incoming may have a hello, and an Outgoing a refusal
//   kWho                         in the log
//   Attach, OnMessage, Detach    LiveCoordinator's, of such a connection; what Attach is given lives until it is done
//   Queue                        appends an Outgoing to those that wait, the first of which is being
//                                written; false: there are too many, and the connection is cut
// Deletes itself when the call is over.
template <typename Peer>
class StandingCall final
    : public grpc::ServerBidiReactor<typename Peer::Incoming, typename Peer::Outgoing> {
 public:
  // `refusals` says which are logged, and outlives this.
  StandingCall(LiveCoordinator* live, grpc::CallbackServerContext* context, LogThrottle* refusals)
      : live_(live), context_(context), refusals_(refusals) {
    this->StartRead(&incoming_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      if (hello_) Peer::Detach(live_, *hello_, this);
      {
        absl::MutexLock lock(&mutex_);
        finished_ = true;
      }
      this->Finish(grpc::Status::OK);  // After this the call may be gone.
      return;
    }
    if (!hello_) return Register();
    if (!CheckTexts(incoming_).ok()) {
      context_->TryCancel();  // No server of ours.
    } else {
      Peer::OnMessage(live_, *hello_, this, incoming_);
    }
    ReadNext();
  }

  void OnWriteDone(bool ok) override {
    absl::MutexLock lock(&mutex_);
    queue_.pop_front();
    if (!ok) queue_.clear();
    WriteNext();
  }

  void OnCancel() override {}  // Reading fails, which ends the call.
  void OnDone() override { delete this; }

 private:
  void Register() {
    const absl::Status texts =
        incoming_.has_hello()
            ? CheckTexts(incoming_)
            : absl::InvalidArgumentError("attach: first message has no hello, want one");
    if (!texts.ok()) return OnAttached(texts);
    Peer::Attach(
        live_, incoming_, this, [this](const typename Peer::Outgoing* message) { Send(message); },
        [this](const absl::Status& attached) { OnAttached(attached); });
  }

  // After a Finish the call may be gone.
  void OnAttached(const absl::Status& attached) {
    if (attached.ok()) {
      hello_ = incoming_.hello();
      hello_->clear_job_text();  // It has said what it was for.
      return ReadNext();
    }
    if (absl::IsUnavailable(attached)) return this->Finish(ToGrpc(attached));
    TellRefused(attached);
    refusal_.set_refuse(ToUtf8(attached.message()));
    // Nothing was registered, so nobody else writes.
    this->StartWriteAndFinish(&refusal_, grpc::WriteOptions(), ToGrpc(attached));
  }

  void ReadNext() {
    incoming_.Clear();
    this->StartRead(&incoming_);
  }

  void TellRefused(const absl::Status& why) {
    const std::optional<uint64_t> held_back = refusals_->Pass(SteadyNow());
    if (!held_back.has_value()) return;
    Log(LogLevel::kWarning,
        absl::StrCat(Peer::kWho, " refused from=", context_->peer(), " why=\"", why.message(), "\"",
                     *held_back > 0 ? absl::StrCat(" not_logged=", *held_back) : ""));
  }

  // nullptr: there will be no more.
  void Send(const typename Peer::Outgoing* message) {
    absl::MutexLock lock(&mutex_);
    if (finished_) return;
    if (message == nullptr || !Peer::Queue(*message, &queue_)) {
      context_->TryCancel();
      return;
    }
    if (queue_.size() == 1) WriteNext();
  }

  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!queue_.empty() && !finished_) this->StartWrite(&queue_.front());
  }

  LiveCoordinator* const live_;
  grpc::CallbackServerContext* const context_;
  LogThrottle* const refusals_;
  typename Peer::Incoming incoming_;
  std::optional<typename Peer::Hello> hello_;  // read by OnReadDone only
  typename Peer::Outgoing refusal_;
  absl::Mutex mutex_;
  std::deque<typename Peer::Outgoing> queue_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_RPC_STANDING_CALL_H_
