#include "deploy/cli/status_stream.h"

#include <chrono>

#include <grpcpp/grpcpp.h>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/steady_clock.h"
#include "common/rpc/control_channel.h"
#include "common/rpc/security.h"
#include "common/rpc/status.h"

namespace tessera {
namespace {

constexpr std::chrono::milliseconds kConnectPoll(50);
constexpr std::chrono::seconds kTryMax(2);

absl::Status Annotate(const std::string& address, const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const absl::Status result = FromGrpc(status);
  return absl::Status(result.code(), absl::StrCat("status of ", address, ": ", result.message()));
}

// Why there is no connection, at once.
grpc::Status Try(v1::Status::Stub* stub) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kTryMax);
  v1::StatusRequest request;
  request.set_recent_history(true);  // Nobody looks at the answer.
  v1::JobStatus status;
  return stub->Get(&context, request, &status);
}

// "Peer name 10.0.0.1 is not in peer certificate", "CERTIFICATE_VERIFY_FAILED": trying again does not help.
bool IsHopeless(const grpc::Status& status) {
  return absl::StrContains(absl::AsciiStrToLower(status.error_message()), "certificate");
}

}  // namespace

StatusStream::StatusStream(const std::string& address, absl::Duration interval,
                           absl::Duration patience, bool recent_history)
    : address_(address), channel_(OpenControlChannel(address, Role::kViewer)) {
  v1::StatusRequest request;
  request.set_interval_ns(absl::ToInt64Nanoseconds(interval));
  request.set_recent_history(recent_history);
  thread_ = std::thread([this, request, patience] { Follow(request, patience); });
}

StatusStream::~StatusStream() {
  ending_ = true;
  context_.TryCancel();
  thread_.join();
}

void StatusStream::Follow(const v1::StatusRequest& request, absl::Duration patience) {
  const absl::Time give_up = SteadyNow() + patience;
  const auto connected = [this] {
    return channel_->WaitForConnected(std::chrono::system_clock::now() + kConnectPoll);
  };
  const std::unique_ptr<v1::Status::Stub> stub = v1::Status::NewStub(channel_);
  while (SteadyNow() < give_up && !ending_ && !connected()) {
    if (channel_->GetState(/*try_to_connect=*/false) != GRPC_CHANNEL_TRANSIENT_FAILURE) continue;
    const grpc::Status tried = Try(stub.get());
    if (!IsHopeless(tried)) continue;
    absl::MutexLock lock(&mutex_);
    ended_ = absl::FailedPreconditionError(Annotate(address_, tried).message());
    return;
  }
  const auto reader = stub->Watch(&context_, request);
  v1::JobStatus status;
  while (reader->Read(&status)) {
    absl::MutexLock lock(&mutex_);
    latest_ = status;
    ++received_;
  }
  const absl::Status ended = Annotate(address_, reader->Finish());
  absl::MutexLock lock(&mutex_);
  ended_ = ended;
}

std::optional<v1::JobStatus> StatusStream::latest() const {
  absl::MutexLock lock(&mutex_);
  return latest_;
}

uint64_t StatusStream::received() const {
  absl::MutexLock lock(&mutex_);
  return received_;
}

std::optional<absl::Status> StatusStream::ended() const {
  absl::MutexLock lock(&mutex_);
  return ended_;
}

absl::Status StatusStream::Ask(AdminCall call, const v1::AdminRequest& request) {
  const std::unique_ptr<v1::Admin::Stub> stub =
      v1::Admin::NewStub(OpenControlChannel(address_, Role::kOperator));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(2));
  v1::AdminReply reply;
  return Annotate(address_, (stub.get()->*call)(&context, request, &reply));
}

absl::Status StatusStream::Drain(const std::string& reason) {
  v1::AdminRequest request;
  request.set_reason(reason);
  return Ask(&v1::Admin::Stub::Drain, request);
}

absl::Status StatusStream::Fail(const std::string& reason) {
  v1::AdminRequest request;
  request.set_reason(reason);
  request.set_is_failure(true);
  return Ask(&v1::Admin::Stub::Stop, request);
}

}  // namespace tessera
