// Calls to a coordinator that is not there yet, is not there any more, or is somewhere else.
#include "worker/rpc/coordinator_calls.h"

#include <catch2/catch.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "common/base/ids.h"
#include "common/rpc/grpc_server.h"
#include "worker/rpc/retry.h"

namespace tessera {
namespace {

using Stub = CoordinatorCalls::Stub;
constexpr absl::Duration kLong = absl::Seconds(60);

// Answers as it is told to, by the number of the call.
class Scripted final : public v1::Coordinator::Service {
 public:
  explicit Scripted(std::function<grpc::Status(int, grpc::ServerContext*)> answer)
      : answer_(std::move(answer)) {
    auto started = GrpcServer::Start({"127.0.0.1:0", {this}});
    REQUIRE(started.ok());
    server_ = *std::move(started);
  }
  ~Scripted() override { server_->Shutdown(absl::ZeroDuration()); }

  grpc::Status BeginTraining(grpc::ServerContext* context, const v1::BeginTrainingRequest*,
                             v1::BeginTrainingReply*) override {
    return answer_(++calls_, context);
  }
  const std::string& address() const { return server_->address(); }
  int calls() const { return calls_; }

 private:
  const std::function<grpc::Status(int, grpc::ServerContext*)> answer_;
  std::atomic<int> calls_{0};
  std::unique_ptr<GrpcServer> server_;
};

grpc::Status NotNow(int, grpc::ServerContext*) {
  return grpc::Status(grpc::StatusCode::UNAVAILABLE, "not now");
}

absl::Status Begin(CoordinatorCalls* calls, absl::Duration time) {
  v1::BeginTrainingReply reply;
  return calls->Call(&Stub::BeginTraining, v1::BeginTrainingRequest(), &reply, kLong,
                     Retry(CoordinatorRetry(time), MemberId(1)));
}

TEST_CASE("a call is repeated until it is answered", "[coordinator][client]") {
  Scripted coordinator([](int call, grpc::ServerContext* context) {
    return call < 4 ? NotNow(call, context) : grpc::Status::OK;
  });
  CoordinatorCalls calls(coordinator.address(), nullptr);
  CHECK(Begin(&calls, kLong).ok());
  CHECK(coordinator.calls() == 4);
}

TEST_CASE("what the coordinator refuses is not asked again, and says who refused it",
          "[coordinator][client]") {
  Scripted coordinator([](int, grpc::ServerContext*) {
    return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "no member");
  });
  CoordinatorCalls calls(coordinator.address(), nullptr);
  const absl::Status status = Begin(&calls, kLong);
  CHECK(absl::IsFailedPrecondition(status));
  CHECK(status.message() == "coordinator at " + coordinator.address() + ": no member");
  CHECK(coordinator.calls() == 1);
}

TEST_CASE("a coordinator that is away is given up when its time is over", "[coordinator][client]") {
  Scripted coordinator(NotNow);
  CoordinatorCalls calls(coordinator.address(), nullptr);
  const absl::Status status = Begin(&calls, absl::Seconds(1));
  CHECK(absl::IsUnavailable(status));
  CHECK(status.message() ==
        "coordinator at " + coordinator.address() + ": not now; not reached for 1s");
  CHECK(coordinator.calls() >= 2);
}

TEST_CASE("an address where there is no coordinator is not tried again", "[coordinator][client]") {
  const auto other = GrpcServer::Start({"127.0.0.1:0", {}});
  REQUIRE(other.ok());
  CoordinatorCalls calls((*other)->address(), nullptr);
  const absl::Status status = Begin(&calls, kLong);
  CHECK(absl::IsInvalidArgument(status));
  CHECK(absl::EndsWith(status.message(), ": there is none, want the address of server 0"));
}

TEST_CASE("a call that has failed looks for the coordinator where it is now",
          "[coordinator][client]") {
  Scripted old(NotNow);
  Scripted elected([](int, grpc::ServerContext*) { return grpc::Status::OK; });
  CoordinatorCalls calls(old.address(), [&] { return elected.address(); });
  CHECK(Begin(&calls, kLong).ok());
  CHECK(old.calls() == 1);
  CHECK(calls.address() == elected.address());
}

TEST_CASE("a coordinator that is yet to be elected is waited for", "[coordinator][client]") {
  Scripted elected([](int, grpc::ServerContext*) { return grpc::Status::OK; });
  int asked = 0;
  CoordinatorCalls calls("", [&]() -> absl::StatusOr<std::string> {
    if (++asked < 4) return absl::UnavailableError("nobody has been elected");
    return elected.address();
  });
  CHECK(Begin(&calls, kLong).ok());
  CHECK(asked == 4);
}

// Answers nobody before it is called off.
struct Silent {
  absl::Notification asked;
  Scripted coordinator{[this](int call, grpc::ServerContext* context) {
    if (call == 1) asked.Notify();
    while (!context->IsCancelled()) std::this_thread::yield();
    return grpc::Status::CANCELLED;
  }};
};

TEST_CASE("a call that waits for its answer ends when it is cancelled, and so do later ones",
          "[coordinator][client]") {
  Silent silent;
  CoordinatorCalls calls(silent.coordinator.address(), nullptr);
  absl::Status status;
  std::thread caller([&] { status = Begin(&calls, kLong); });
  silent.asked.WaitForNotification();
  calls.Cancel();
  caller.join();
  CHECK(absl::IsCancelled(status));
  CHECK(absl::IsCancelled(Begin(&calls, kLong)));
  CHECK(silent.coordinator.calls() == 1);
}

TEST_CASE("a call that must be heard is made though others are cancelled",
          "[coordinator][client]") {
  Scripted coordinator([](int, grpc::ServerContext*) { return grpc::Status::OK; });
  CoordinatorCalls calls(coordinator.address(), nullptr);
  calls.Cancel();
  v1::BeginTrainingReply reply;
  CHECK(calls
            .Once(&Stub::BeginTraining, v1::BeginTrainingRequest(), &reply,
                  {kLong, /*may_be_cancelled=*/false})
            .ok());
}

TEST_CASE(
    "a call to where the coordinator was is called off once another call has found it elsewhere",
    "[coordinator][client]") {
  Silent old;
  Scripted elected([](int, grpc::ServerContext*) { return grpc::Status::OK; });
  CoordinatorCalls calls(old.coordinator.address(), [&] { return elected.address(); });
  absl::Status status;
  std::thread caller([&] { status = Begin(&calls, kLong); });
  old.asked.WaitForNotification();
  // Its answer does not come in time, and the coordinator is looked for.
  v1::BeginTrainingReply reply;
  const absl::Status late = calls.Once(&Stub::BeginTraining, v1::BeginTrainingRequest(), &reply,
                                       {absl::Milliseconds(20)});
  CHECK(absl::IsDeadlineExceeded(late));
  caller.join();
  CHECK(status.ok());
  CHECK(elected.calls() == 1);
}

}  // namespace
}  // namespace tessera
