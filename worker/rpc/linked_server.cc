#include "worker/rpc/linked_server.h"

#include <chrono>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/steady_clock.h"
#include "common/rpc/shared_memory/memory_hello.h"
#include "common/rpc/shared_memory/shared_arena.h"
#include "common/rpc/status.h"

namespace tessera {
namespace {

// A server that could not be reached is asked again after this time.
constexpr absl::Duration kAskInterval = absl::Seconds(1);
constexpr absl::Duration kAskTime = absl::Seconds(5);
// The server's thread that waits at its socket has nothing else to do.
constexpr absl::Duration kHelloTime = absl::Milliseconds(500);

// Whether asking again may end otherwise.
bool MayPass(absl::StatusCode code) {
  return code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kDeadlineExceeded ||
         code == absl::StatusCode::kCancelled || code == absl::StatusCode::kResourceExhausted;
}

}  // namespace

std::shared_ptr<LinkedServer> LinkedServer::Create(std::string server,
                                                   std::shared_ptr<grpc::Channel> channel,
                                                   const v1::Caller& caller) {
  return std::shared_ptr<LinkedServer>(
      new LinkedServer(std::move(server), std::move(channel), caller));
}

LinkedServer::LinkedServer(std::string server, std::shared_ptr<grpc::Channel> channel,
                           const v1::Caller& caller)
    : server_(std::move(server)),
      stub_(v1::ParameterServer::NewStub(std::move(channel))),
      caller_(caller) {}

std::shared_ptr<LocalCaller> LinkedServer::caller() {
  {
    absl::MutexLock lock(&mutex_);
    // The server may have ended, and another one may be at its address.
    // Calls that are under way by the old link keep it until they have ended.
    if (local_ != nullptr && !local_->link()->is_connected()) local_.reset();
    if (local_ != nullptr) return local_;
    if (is_asking_ || is_refused_ || SteadyNow() < next_) return nullptr;
    is_asking_ = true;
    next_ = SteadyNow() + kAskInterval;
  }
  Ask();
  return nullptr;
}

void LinkedServer::Leave() {
  absl::MutexLock lock(&mutex_);
  local_.reset();
}

void LinkedServer::Ask() {
  // The answer may come after the client has gone: the question keeps what it needs.
  const auto question = std::make_shared<Question>();
  question->context.set_deadline(std::chrono::system_clock::now() +
                                 absl::ToChronoSeconds(kAskTime));
  *question->request.mutable_caller() = caller_;
  question->request.set_machine(SteadyClockName());
  stub_->async()->ShareMemory(&question->context, &question->request, &question->reply,
                              [self = shared_from_this(), question](const grpc::Status& status) {
                                self->OnReply(FromGrpc(status), question->reply);
                              });
}

void LinkedServer::OnReply(const absl::Status& status, const v1::ShareMemoryReply& reply) {
  const auto connect = [&]() -> absl::StatusOr<std::shared_ptr<LocalCaller>> {
    TESSERA_RETURN_IF_ERROR(status);
    TESSERA_ASSIGN_OR_RETURN(
        std::shared_ptr<MemoryLink> link,
        ConnectMemory(reply.socket(), reply.link(), SharedArena::OfProcess(), kHelloTime));
    return std::make_shared<LocalCaller>(std::move(link));
  };
  const absl::StatusOr<std::shared_ptr<LocalCaller>> link = connect();
  const bool may_pass = MayPass(link.status().code());
  {
    absl::MutexLock lock(&mutex_);
    is_asking_ = false;
    is_refused_ = !link.ok() && !may_pass;
    if (link.ok()) local_ = *link;
  }
  if (link.ok()) {
    return Log(LogLevel::kInfo,
               absl::StrCat("worker: payloads go by shared memory server=\"", server_, "\""));
  }
  if (may_pass) return;
  Log(LogLevel::kInfo, absl::StrCat("worker: payloads go by TCP server=\"", server_, "\" why=\"",
                                    link.status().message(), "\""));
}

}  // namespace tessera
