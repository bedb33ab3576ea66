#include "server/rpc/coordinator_service.h"

#include <deque>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/rpc/status.h"
#include "server/rpc/message_limits.h"

namespace tessera {
namespace {

// More plan messages than this wait for a server that does not read: its connection is cut.
constexpr size_t kPlanQueueMax = 4096;

// One attached server. Deletes itself when the call is over.
class AttachCall final : public grpc::ServerBidiReactor<v1::ShardMessage, v1::PlanMessage> {
 public:
  AttachCall(LiveCoordinator* live, grpc::CallbackServerContext* context)
      : live_(live), context_(context) {
    StartRead(&incoming_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      if (hello_) live_->Detach(*hello_, this);
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
      live_->OnShardMessage(*hello_, this, incoming_);
    }
    incoming_.Clear();
    StartRead(&incoming_);
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
  // False: the server was refused.
  bool Register() {
    absl::Status attached =
        incoming_.has_hello()
            ? CheckTexts(incoming_)
            : absl::InvalidArgumentError("attach: first message has no hello, want one");
    if (attached.ok()) {
      attached = live_->Attach(incoming_.hello(), this,
                               [this](const v1::PlanMessage* message) { Send(message); });
    }
    if (attached.ok()) {
      hello_ = incoming_.hello();
      if (incoming_.leaves()) live_->OnShardMessage(*hello_, this, incoming_);
      return true;
    }
    if (absl::IsUnavailable(attached)) {
      // The server is to look for the coordinator elsewhere.
      Finish(ToGrpc(attached));
      return false;
    }
    Log(LogLevel::kWarning,
        absl::StrCat("control: server refused why=\"", attached.message(), "\""));
    refusal_.set_refuse(std::string(attached.message()));
    // Nothing was registered, so nobody else writes.
    StartWriteAndFinish(&refusal_, grpc::WriteOptions(), ToGrpc(attached));
    return false;
  }

  void Send(const v1::PlanMessage* message) {
    absl::MutexLock lock(&mutex_);
    if (finished_) return;
    if (message == nullptr || queue_.size() >= kPlanQueueMax) {
      context_->TryCancel();
      return;
    }
    queue_.push_back(*message);
    if (queue_.size() == 1) WriteNext();
  }

  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!queue_.empty() && !finished_) StartWrite(&queue_.front());
  }

  LiveCoordinator* const live_;
  grpc::CallbackServerContext* const context_;
  v1::ShardMessage incoming_;
  std::optional<v1::ServerHello> hello_;  // read by OnReadDone only
  v1::PlanMessage refusal_;
  absl::Mutex mutex_;
  std::deque<v1::PlanMessage> queue_ ABSL_GUARDED_BY(mutex_);  // the first one is being written
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

// One stage of one worker's evaluation. Deletes itself when the call is over.
class EvaluateCall final : public grpc::ServerUnaryReactor {
 public:
  EvaluateCall(LiveCoordinator* live, const v1::EvaluateRequest* request, v1::EvaluateReply* reply)
      : live_(live), member_(request->member()), reply_(reply) {
    // Its messages have no texts.
    live_->Evaluate(*request, this, [this](absl::StatusOr<v1::EvaluateReply> answer) {
      if (answer.ok()) *reply_ = *std::move(answer);
      Finish(ToGrpc(answer.status()));
    });
  }

  void OnCancel() override {
    if (live_->Forget(member_, this)) Finish(grpc::Status::CANCELLED);
  }
  void OnDone() override { delete this; }

 private:
  LiveCoordinator* const live_;
  const MemberId member_;
  v1::EvaluateReply* const reply_;
};

grpc::ServerUnaryReactor* Finished(grpc::CallbackServerContext* context,
                                   const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(status));
  return reactor;
}

template <typename Reply>
absl::Status TakeReply(absl::StatusOr<Reply> result, Reply* reply) {
  if (result.ok()) *reply = *std::move(result);
  return result.status();
}
template <typename Reply>
absl::Status TakeReply(absl::Status result, Reply*) {
  return result;
}

// The answer that event(coordinator, now) gives to `request`, if that is within the limits.
template <typename Request, typename Reply, typename Event>
grpc::ServerUnaryReactor* Answer(LiveCoordinator* live, grpc::CallbackServerContext* context,
                                 const Request& request, Reply* reply, Event event) {
  const absl::Status texts = CheckTexts(request);
  if (!texts.ok()) return Finished(context, texts);
  return Finished(context, TakeReply(live->Run(request.run(), event), reply));
}

}  // namespace

grpc::ServerBidiReactor<v1::ShardMessage, v1::PlanMessage>* CoordinatorService::Attach(
    grpc::CallbackServerContext* context) {
  return new AttachCall(live_, context);
}

grpc::ServerUnaryReactor* CoordinatorService::Join(grpc::CallbackServerContext* context,
                                                   const v1::JoinRequest* request,
                                                   v1::JoinReply* reply) {
  if (const absl::Status texts = CheckTexts(*request); !texts.ok()) return Finished(context, texts);
  // A worker that waits for the start of a run which is no more waits for that of this one.
  v1::JoinRequest asked = *request;
  const v1::CoordinatorWord word = live_->word();
  if (asked.run() != 0 && asked.run() != word.run()) asked.set_member(0);
  auto joined = live_->Run([&](Coordinator& coordinator, absl::Time now) {
    return coordinator.Join(asked, now);
  });
  if (joined.ok()) *joined->mutable_word() = word;
  return Finished(context, TakeReply(std::move(joined), reply));
}

grpc::ServerUnaryReactor* CoordinatorService::Renew(grpc::CallbackServerContext* context,
                                                    const v1::RenewRequest* request,
                                                    v1::RenewReply* reply) {
  if (const absl::Status texts = CheckTexts(*request); !texts.ok()) return Finished(context, texts);
  auto renewed = live_->Run(request->run(), [&](Coordinator& coordinator, absl::Time now) {
    return coordinator.Renew(*request, now);
  });
  if (renewed.ok()) *renewed->mutable_word() = live_->word();
  return Finished(context, TakeReply(std::move(renewed), reply));
}

grpc::ServerUnaryReactor* CoordinatorService::BeginTraining(
    grpc::CallbackServerContext* context, const v1::BeginTrainingRequest* request,
    v1::BeginTrainingReply* reply) {
  return Answer(live_, context, *request, reply, [&](Coordinator& coordinator, absl::Time now) {
    return coordinator.BeginTraining(MemberId(request->member()), now);
  });
}

grpc::ServerUnaryReactor* CoordinatorService::BeginEpoch(grpc::CallbackServerContext* context,
                                                         const v1::BeginEpochRequest* request,
                                                         v1::EpochCut* reply) {
  return Answer(live_, context, *request, reply, [&](Coordinator& coordinator, absl::Time now) {
    return coordinator.BeginEpoch(*request, now);
  });
}

grpc::ServerUnaryReactor* CoordinatorService::Evaluate(grpc::CallbackServerContext* context,
                                                       const v1::EvaluateRequest* request,
                                                       v1::EvaluateReply* reply) {
  return new EvaluateCall(live_, request, reply);
}

grpc::ServerUnaryReactor* CoordinatorService::Leave(grpc::CallbackServerContext* context,
                                                    const v1::LeaveRequest* request,
                                                    v1::LeaveReply* reply) {
  return Answer(live_, context, *request, reply, [&](Coordinator& coordinator, absl::Time now) {
    return coordinator.Leave(*request, now);
  });
}

grpc::ServerUnaryReactor* CoordinatorService::Saved(grpc::CallbackServerContext* context,
                                                    const v1::SavedRequest* request,
                                                    v1::SavedReply* reply) {
  return Answer(live_, context, *request, reply, [&](Coordinator& coordinator, absl::Time now) {
    return coordinator.Saved(*request, now);
  });
}

}  // namespace tessera
