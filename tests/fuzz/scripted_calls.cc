#include "tests/fuzz/scripted_calls.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace tessera {
namespace {

// Writes one message after the other. What the caller says is not read.
class Answering final : public grpc::ServerGenericBidiReactor {
 public:
  explicit Answering(ScriptedAnswer answer) : answer_(std::move(answer)) { Next(); }

  void OnWriteDone(bool ok) override {
    if (ok) return Next();
    Finish(grpc::Status::CANCELLED);
  }
  void OnDone() override { delete this; }

 private:
  void Next() {
    if (next_ == answer_.messages.size()) {
      const bool is_ok = answer_.code == grpc::StatusCode::OK;
      return Finish(is_ok ? grpc::Status() : grpc::Status(answer_.code, "as the script says"));
    }
    const grpc::Slice slice(answer_.messages[next_++]);
    message_ = grpc::ByteBuffer(&slice, 1);
    StartWrite(&message_);
  }

  const ScriptedAnswer answer_;
  size_t next_ = 0;
  grpc::ByteBuffer message_;
};

}  // namespace

ScriptedCalls::ScriptedCalls() {
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterCallbackGenericService(this);
  server_ = builder.BuildAndStart();
  TESSERA_CHECK(server_ != nullptr && port != 0);
  address_ = absl::StrCat("127.0.0.1:", port);
}

ScriptedCalls::~ScriptedCalls() { server_->Shutdown(std::chrono::system_clock::now()); }

void ScriptedCalls::Set(const std::string& method, std::vector<ScriptedAnswer> answers) {
  absl::MutexLock lock(&mutex_);
  answers_[method].assign(answers.begin(), answers.end());
}

grpc::ServerGenericBidiReactor* ScriptedCalls::CreateReactor(
    grpc::GenericCallbackServerContext* context) {
  ScriptedAnswer answer;
  absl::MutexLock lock(&mutex_);
  std::deque<ScriptedAnswer>& left = answers_[context->method()];
  if (left.empty()) {
    answer.code = grpc::StatusCode::INTERNAL;
  } else {
    answer = std::move(left.front());
    left.pop_front();
  }
  return new Answering(std::move(answer));
}

}  // namespace tessera
