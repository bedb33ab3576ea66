#include "server/rpc/status_service.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include <grpcpp/alarm.h>
#include <grpcpp/support/byte_buffer.h>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/borrowed_slice.h"
#include "common/rpc/call_limit.h"
#include "common/rpc/chunk.h"
#include "common/rpc/status.h"
#include "server/rpc/message_limits.h"

namespace tessera {
namespace {

absl::Duration IntervalOf(const v1::StatusRequest& request) {
  if (request.interval_ns() <= 0) return kWatchIntervalDefault;
  // A reader that wants statuses too often gets them as often as allowed.
  return std::clamp(absl::Nanoseconds(request.interval_ns()), kWatchIntervalMin, kWatchIntervalMax);
}

HistoryWanted HistoryOf(const v1::StatusRequest& request) {
  return request.recent_history() ? HistoryWanted::kRecent : HistoryWanted::kAll;
}

// One reader's call. It may have to wait for its reply, and gives way where it does not take it. Deletes itself when
// the call is over and nobody else holds it. Its context goes once OnDone has returned.
class StatusCall : public LimitedCall, public std::enable_shared_from_this<StatusCall> {
 public:
  StatusCall(StatusReaders* readers, grpc::CallbackServerContext* context, HistoryWanted history)
      : readers_(*readers),
        context_(context),
        history_(history),
        peer_(context->peer()),
        host_(NumberOfHost(peer_)) {}

  void GiveWay() override {
    readers_.TellSlow(peer_);
    absl::MutexLock lock(&context_mutex_);
    if (!is_done_) context_->TryCancel();
  }

 protected:
  const StatusLimits& limits() const { return readers_.limits(); }
  // How long the next reply is to wait; infinite: there is none for now.
  absl::Duration Wait() { return readers_.Wait(host_, history_); }
  // The bytes of a status, which count as unread until Taken. The result says whether it is the last one.
  bool TakeStatus(absl::Duration age_max, grpc::ByteBuffer* bytes) {
    const std::shared_ptr<const StatusText> text =
        readers_.Send(host_, shared_from_this(), age_max, history_);
    // All readers of one status share its bytes.
    *bytes = Borrow(text);
    return text->is_last;
  }
  // The bytes of another reply, which count as unread, too.
  grpc::ByteBuffer TakeReply(std::string reply) {
    auto text = std::make_shared<StatusText>();
    text->bytes = std::move(reply);
    readers_.Count(host_, shared_from_this(), text);
    return Borrow(text);
  }
  void Taken() { readers_.Taken(this); }
  void SetDone() {
    Taken();
    absl::MutexLock lock(&context_mutex_);
    is_done_ = true;
  }

 private:
  static grpc::ByteBuffer Borrow(const std::shared_ptr<const StatusText>& text) {
    const grpc::Slice slice =
        BorrowSlice(text->bytes.data(), static_cast<int64_t>(text->bytes.size()), text);
    return grpc::ByteBuffer(&slice, 1);
  }

  StatusReaders& readers_;
  grpc::CallbackServerContext* const context_;
  const HistoryWanted history_;
  const std::string peer_;
  const uint64_t host_;
  absl::Mutex context_mutex_;
  bool is_done_ ABSL_GUARDED_BY(context_mutex_) = false;
};

// Wakes a call later. The call's mutex guards it. It may be set again by whom it wakes: there are two alarms in turn,
// as one holds what it runs.
class CallTimer {
 public:
  template <typename Then>
  void Set(absl::Duration wait, Then then) {
    is_set_ = true;
    turn_ ^= 1;
    alarms_[turn_].Set(std::chrono::system_clock::now() + absl::ToChronoNanoseconds(wait),
                       [then](bool) { then(); });
  }
  // It has woken the call.
  void OnWoken() { is_set_ = false; }
  void Cancel() {
    if (is_set_) alarms_[turn_].Cancel();
  }

 private:
  grpc::Alarm alarms_[2];
  int turn_ = 0;
  bool is_set_ = false;
};

// The bytes of a reply, or why there is none.
using MakeReply = std::function<absl::StatusOr<std::string>()>;

// Answers once: with the status, or with what `make` makes. The call is not over before its timer has woken it: nothing
// else ends it while that is set.
class GetCall final : public grpc::ServerUnaryReactor, public StatusCall {
 public:
  static grpc::ServerUnaryReactor* Start(StatusReaders* readers,
                                         grpc::CallbackServerContext* context,
                                         HistoryWanted history, grpc::ByteBuffer* reply,
                                         MakeReply make = nullptr) {
    auto call = std::make_shared<GetCall>(readers, context, history, reply, std::move(make));
    call->self_ = call;
    call->Begin();
    return call.get();
  }
  GetCall(StatusReaders* readers, grpc::CallbackServerContext* context, HistoryWanted history,
          grpc::ByteBuffer* reply, MakeReply make)
      : StatusCall(readers, context, history), reply_(reply), make_(std::move(make)) {}

  void OnCancel() override {
    absl::MutexLock lock(&mutex_);
    is_cancelled_ = true;
    timer_.Cancel();
  }
  void OnDone() override {
    SetDone();
    const std::shared_ptr<GetCall> self = std::move(self_);
  }

 private:
  void Begin() {
    const absl::Duration wait = Wait();
    if (wait == absl::InfiniteDuration()) {
      return Finish(ToGrpc(absl::ResourceExhaustedError(
          absl::StrCat("status: this host asks for more than ", limits().bytes_per_second >> 10,
                       " KiB of statuses a second, of which each call counts ",
                       ReplyPace::kCallBytes >> 10, " at least; ask less often, or use Watch"))));
    }
    if (wait == absl::ZeroDuration()) return Answer();
    absl::MutexLock lock(&mutex_);
    timer_.Set(wait, [this] { OnTimer(); });
    // Cancelled before the timer was set: it is woken at once.
    if (is_cancelled_) timer_.Cancel();
  }
  void OnTimer() {
    bool is_cancelled = false;
    {
      absl::MutexLock lock(&mutex_);
      timer_.OnWoken();
      is_cancelled = is_cancelled_;
    }
    if (is_cancelled) return Finish(grpc::Status::CANCELLED);
    Answer();
  }
  void Answer() {
    if (make_ == nullptr) {
      TakeStatus(absl::ZeroDuration(), reply_);
      return Finish(grpc::Status::OK);
    }
    absl::StatusOr<std::string> made = make_();
    if (!made.ok()) return Finish(ToGrpc(made.status()));
    *reply_ = TakeReply(*std::move(made));
    Finish(grpc::Status::OK);
  }

  grpc::ByteBuffer* const reply_;
  const MakeReply make_;
  std::shared_ptr<GetCall> self_;
  absl::Mutex mutex_;
  CallTimer timer_ ABSL_GUARDED_BY(mutex_);
  bool is_cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

// A timer wakes it for the next status.
class WatchCall final : public grpc::ServerWriteReactor<grpc::ByteBuffer>, public StatusCall {
 public:
  static grpc::ServerWriteReactor<grpc::ByteBuffer>* Start(StatusReaders* readers,
                                                           grpc::CallbackServerContext* context,
                                                           const v1::StatusRequest& asked) {
    auto call = std::make_shared<WatchCall>(readers, context, asked);
    call->self_ = call;
    call->WriteWhenDue(call->Wait());
    return call.get();
  }
  WatchCall(StatusReaders* readers, grpc::CallbackServerContext* context,
            const v1::StatusRequest& asked)
      : StatusCall(readers, context, HistoryOf(asked)), interval_(IntervalOf(asked)) {}

  void OnWriteDone(bool ok) override {
    Taken();
    message_.Clear();
    {
      // The timer is set under the lock, as a cancellation may come at any moment.
      absl::MutexLock lock(&mutex_);
      if (ok && !is_cancelled_ && !is_last_) {
        timer_.Set(interval_, [this] { OnTimer(); });
        return;
      }
    }
    Finish(grpc::Status::OK);  // After this the call may be gone.
  }
  void OnCancel() override {
    absl::MutexLock lock(&mutex_);
    is_cancelled_ = true;
    timer_.Cancel();
  }
  void OnDone() override {
    SetDone();
    const std::shared_ptr<WatchCall> self = std::move(self_);
  }

 private:
  void OnTimer() {
    bool is_cancelled = false;
    {
      absl::MutexLock lock(&mutex_);
      timer_.OnWoken();
      is_cancelled = is_cancelled_;
    }
    if (is_cancelled) return Finish(grpc::Status::OK);
    WriteWhenDue(Wait());
  }
  // One that its host has no bytes for gets the next status after another interval.
  void WriteWhenDue(absl::Duration wait) {
    if (wait == absl::ZeroDuration()) return Write();
    absl::MutexLock lock(&mutex_);
    if (wait == absl::InfiniteDuration()) {
      timer_.Set(std::max(interval_, kStatusPatience), [this] { OnTimer(); });
    } else {
      timer_.Set(wait, [this] { OnPaid(); });
    }
    if (is_cancelled_) timer_.Cancel();
  }
  void OnPaid() {
    bool is_cancelled = false;
    {
      absl::MutexLock lock(&mutex_);
      timer_.OnWoken();
      is_cancelled = is_cancelled_;
    }
    if (is_cancelled) return Finish(grpc::Status::OK);
    Write();
  }
  void Write() {
    // Watching readers share a status that is a moment old.
    is_last_ = TakeStatus(kWatchedAgeMax, &message_);
    StartWrite(&message_);
  }

  const absl::Duration interval_;
  std::shared_ptr<WatchCall> self_;
  grpc::ByteBuffer message_;
  bool is_last_ = false;  // one thread at a time: each write follows the one before
  absl::Mutex mutex_;
  CallTimer timer_ ABSL_GUARDED_BY(mutex_);
  bool is_cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

// A call that is refused before it has begun.
class RefusedWatch final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  explicit RefusedWatch(const absl::Status& why) { Finish(ToGrpc(why)); }
  void OnDone() override { delete this; }
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
                                             const grpc::ByteBuffer* request,
                                             grpc::ByteBuffer* reply) {
  v1::StatusRequest asked;
  if (const absl::Status read = ReadMessage(*request, &asked); !read.ok()) {
    return Done(context, absl::InvalidArgumentError(absl::StrCat("status: ", read.message())));
  }
  return GetCall::Start(&readers_, context, HistoryOf(asked), reply);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* StatusService::Watch(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  v1::StatusRequest asked;
  if (const absl::Status read = ReadMessage(*request, &asked); !read.ok()) {
    return new RefusedWatch(absl::InvalidArgumentError(absl::StrCat("status: ", read.message())));
  }
  return WatchCall::Start(&readers_, context, asked);
}

grpc::ServerUnaryReactor* StatusService::Events(grpc::CallbackServerContext* context,
                                                const grpc::ByteBuffer* request,
                                                grpc::ByteBuffer* reply) {
  v1::EventsRequest asked;
  if (const absl::Status read = ReadMessage(*request, &asked); !read.ok()) {
    return Done(context, absl::InvalidArgumentError(absl::StrCat("events: ", read.message())));
  }
  // The coordinator may go before it is the call's turn.
  return GetCall::Start(
      &readers_, context, HistoryWanted::kRecent, reply,
      [this, after = asked.after()]() -> absl::StatusOr<std::string> {
        const auto events = events_ == nullptr ? std::nullopt : events_(after);
        if (events.has_value()) return events->SerializeAsString();
        return absl::FailedPreconditionError(
            "events: the coordinator is not on this server; ask server 0, or the elected one");
      });
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
    // The answer says which number the checkpoint will have; it is written later.
    TESSERA_ASSIGN_OR_RETURN(const uint64_t number, coordinator.Checkpoint(request->reason(), now));
    reply->set_number(number);
    return absl::OkStatus();
  });
}

}  // namespace tessera
