#include "worker/rpc/coordinator_calls.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <grpcpp/client_context.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/steady_clock.h"
#include "common/base/wakeup.h"
#include "common/rpc/control_channel.h"
#include "common/rpc/host_addresses.h"
#include "common/rpc/status.h"

namespace tessera {
namespace {

// How soon whoever is blocked notices Cancel, which may only set a flag.
constexpr absl::Duration kCancelPoll = absl::Milliseconds(20);

}  // namespace

CoordinatorCalls::CoordinatorCalls(std::string address,
                                   std::function<absl::StatusOr<std::string>()> find)
    : find_(std::move(find)), address_(std::move(address)) {
  absl::MutexLock lock(&mutex_);
  if (!address_.empty()) Open();
}

void CoordinatorCalls::Open() {
  channel_ = OpenControlChannel(address_);
  stub_ = v1::Coordinator::NewStub(channel_);
  opened_ = SteadyNow();
}

// A channel that is connected to a machine which is gone, or that could not find a name, does not ask for the name's
// addresses before long. One that connects tries them all, one after the other.
bool CoordinatorCalls::IsStale() const {
  return channel_ != nullptr && HasName(address_) &&
         SteadyNow() - opened_ >= absl::Milliseconds(kResolveMsMin) &&
         channel_->GetState(/*try_to_connect=*/false) != GRPC_CHANNEL_CONNECTING;
}

std::string CoordinatorCalls::address() const {
  // Called by other threads, such as the one that renews.
  absl::MutexLock lock(&mutex_);
  return address_;
}

std::shared_ptr<v1::Coordinator::Stub> CoordinatorCalls::CurrentStub(std::string* address) const {
  absl::MutexLock lock(&mutex_);
  *address = address_;
  return stub_;
}

absl::Status CoordinatorCalls::FindAgain() {
  absl::StatusOr<std::string> found = address();
  if (find_) found = find_();
  if (!found.ok()) return found.status();
  absl::MutexLock lock(&mutex_);
  if (*found == address_ && !IsStale()) return absl::OkStatus();
  address_ = *found;
  Open();
  return absl::OkStatus();
}

// The reply's callback may outlive neither `context` nor `result`: this waits for it in any case.
absl::Status CoordinatorCalls::Once(const Begin& begin, Limits limits) {
  grpc::ClientContext context;
  if (limits.patience != absl::InfiniteDuration()) {
    // gRPC takes deadlines on the system's clock.
    context.set_deadline(std::chrono::system_clock::now() +
                         absl::ToChronoNanoseconds(limits.patience));
  }
  Wakeup answered;
  grpc::Status result;
  std::string address;
  // A copy, which lives until the call is over, though another thread may open a channel elsewhere.
  std::shared_ptr<v1::Coordinator::Stub> stub = CurrentStub(&address);
  if (stub == nullptr) {
    TESSERA_RETURN_IF_ERROR(FindAgain());
    stub = CurrentStub(&address);
  }
  // The call is asynchronous, so that Cancel and a coordinator that has moved may end it.
  begin(stub->async(), &context, [&](grpc::Status status) {
    result = std::move(status);
    answered.Notify();
  });
  absl::Time end = absl::InfiniteFuture();
  while (!answered.WaitFor(kCancelPoll)) {
    if (limits.may_be_cancelled && is_cancelled()) {
      // An answer that is nearly there may still come.
      end = std::min(end, SteadyNow() + limits.after_cancel);
    }
    const bool ends = SteadyNow() >= end;
    // Another call has found the coordinator elsewhere: where this one went nobody may answer it.
    const bool has_moved = find_ && this->address() != address;
    if (!ends && !has_moved) continue;
    context.TryCancel();
    // The callback refers to this frame.
    answered.WaitUntil(absl::InfiniteFuture());
    if (ends) return Cancelled();
    return absl::UnavailableError(absl::StrCat("coordinator at ", address, " is elsewhere now"));
  }
  if (result.ok()) return absl::OkStatus();
  // Another service of gRPC listens there, such as a server that is not the first.
  if (result.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
    return absl::InvalidArgumentError(
        absl::StrCat("coordinator at ", address, ": there is none, want the address of server 0"));
  }
  const absl::Status status(FromGrpc(result).code(),
                            absl::StrCat("coordinator at ", address, ": ", result.error_message()));
  // The next attempt may go elsewhere.
  if (CoordinatorRetry(absl::InfiniteDuration()).may_help(status.code())) FindAgain().IgnoreError();
  return status;
}

absl::Status CoordinatorCalls::Judge(const absl::Status& failed, Retry* retry) {
  switch (retry->OnFailure(failed.code(), SteadyNow())) {
    case Retry::Verdict::kAgain:
      return absl::OkStatus();
    case Retry::Verdict::kLate:
      return absl::UnavailableError(absl::StrCat(failed.message(), "; not reached for ",
                                                 absl::FormatDuration(retry->policy().time)));
    case Retry::Verdict::kRefused:
      break;
  }
  return failed;
}

absl::Status CoordinatorCalls::PauseUntil(absl::Time end) const {
  // In short sleeps, as Cancel may only set a flag.
  while (SteadyNow() < end) {
    if (is_cancelled()) return Cancelled();
    absl::SleepFor(std::min(kCancelPoll, end - SteadyNow()));
  }
  return absl::OkStatus();
}

}  // namespace tessera
