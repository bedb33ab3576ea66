#include "server/rpc/coordinator_service.h"

#include <deque>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/steady_clock.h"
#include "common/base/utf8.h"
#include "common/rpc/status.h"
#include "server/rpc/message_limits.h"
#include "server/rpc/standing_call.h"

namespace tessera {
namespace {

// More plan messages than this wait for a server that does not read: its connection is cut.
constexpr size_t kPlanQueueMax = 4096;
// Bytes of a refused worker's description that the log has.
constexpr size_t kDescriptionLogged = 256;

struct ServerPeer {
  using Incoming = v1::ShardMessage;
  using Outgoing = v1::PlanMessage;
  using Hello = v1::ServerHello;
  static constexpr char kWho[] = "control: server";

  static void Attach(LiveCoordinator* live, const Incoming& first, const void* connection,
                     LiveCoordinator::PlanSink sink, LiveCoordinator::StatusDone done) {
    live->Attach(first.hello(), connection, std::move(sink),
                 [=, &first, done = std::move(done)](const absl::Status& attached) {
                   // A server may say in its first message that it leaves; that counts once it is attached.
                   if (attached.ok() && first.leaves()) {
                     live->OnShardMessage(first.hello(), connection, first);
                   }
                   done(attached);
                 });
  }
  static void OnMessage(LiveCoordinator* live, const Hello& hello, const void* connection,
                        const Incoming& message) {
    live->OnShardMessage(hello, connection, message);
  }
  static void Detach(LiveCoordinator* live, const Hello& hello, const void* connection) {
    live->Detach(hello, connection);
  }
  static bool Queue(const Outgoing& message, std::deque<Outgoing>* queue) {
    // Every message changes the server's state, so that none may be dropped: instead the connection ends.
    if (queue->size() >= kPlanQueueMax) return false;
    queue->push_back(message);
    return true;
  }
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
    // The call is finished by whichever comes first, the answer or the caller's going.
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
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  live->Ask(request.run(), event, [reactor, reply](auto result) {
    reactor->Finish(ToGrpc(TakeReply(std::move(result), reply)));
  });
  return reactor;
}

}  // namespace

grpc::ServerBidiReactor<v1::ShardMessage, v1::PlanMessage>* CoordinatorService::Attach(
    grpc::CallbackServerContext* context) {
  return new StandingCall<ServerPeer>(live_, context, &refused_servers_);
}

grpc::ServerUnaryReactor* CoordinatorService::Join(grpc::CallbackServerContext* context,
                                                   const v1::JoinRequest* request,
                                                   v1::JoinReply* reply) {
  if (const absl::Status texts = CheckTexts(*request); !texts.ok()) return Finished(context, texts);
  // A worker that waits for the start of a run which is no more waits for that of this one.
  v1::JoinRequest asked = *request;
  // The word is read before the question: the answer must not tell of a run that came after it.
  const v1::CoordinatorWord word = live_->WordForWorkers();
  if (asked.run() != 0 && asked.run() != word.run()) asked.set_member(0);
  const auto join = [&](Coordinator& coordinator, absl::Time now) {
    return coordinator.Join(asked, now);
  };
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  live_->Ask(0, join, [=](absl::StatusOr<v1::JoinReply> joined) {
    if (joined.ok()) *joined->mutable_word() = word;
    if (!joined.ok() && !absl::IsUnavailable(joined.status())) {
      TellRefused(context->peer(), *request, joined.status());
    }
    reactor->Finish(ToGrpc(TakeReply(std::move(joined), reply)));
  });
  return reactor;
}

void CoordinatorService::TellRefused(const std::string& peer, const v1::JoinRequest& request,
                                     const absl::Status& why) {
  // One that something restarts is refused again and again.
  const std::optional<uint64_t> held_back = refused_workers_.Pass(SteadyNow());
  if (!held_back.has_value()) return;
  Log(LogLevel::kWarning,
      absl::StrCat("control: worker refused from=", peer, " process=\"",
                   CutText(request.description(), kDescriptionLogged), "\" why=\"", why.message(),
                   "\"", *held_back > 0 ? absl::StrCat(" not_logged=", *held_back) : ""));
}

grpc::ServerUnaryReactor* CoordinatorService::Renew(grpc::CallbackServerContext* context,
                                                    const v1::RenewRequest* request,
                                                    v1::RenewReply* reply) {
  if (const absl::Status texts = CheckTexts(*request); !texts.ok()) return Finished(context, texts);
  const auto renew = [&](Coordinator& coordinator, absl::Time now) {
    return coordinator.Renew(*request, now);
  };
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  live_->Ask(request->run(), renew, [=](absl::StatusOr<v1::RenewReply> renewed) {
    if (renewed.ok()) *renewed->mutable_word() = live_->WordForWorkers();
    reactor->Finish(ToGrpc(TakeReply(std::move(renewed), reply)));
  });
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorService::BeginTraining(grpc::CallbackServerContext* context,
                                                            const v1::BeginTrainingRequest* request,
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
    v1::LeaveRequest last = *request;
    // What a worker says of its end is shown to people and kept: it has its bounded length here.
    last.set_error(CutText(last.error(), kEndWhyBytesMax));
    return coordinator.Leave(last, now);
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
