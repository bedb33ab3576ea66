// How often a status is built, for those who watch and those who ask once.
#include "server/rpc/status_service.h"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>
#include <grpcpp/grpcpp.h>

#include "common/base/steady_clock.h"
#include "common/rpc/control_channel.h"
#include "common/rpc/grpc_server.h"
#include "tests/server/rpc/tiny_shape.h"

namespace tessera {
namespace {

TEST_CASE("a status is built once for all who ask for it at a time", "[rpc][status]") {
  absl::Time now = absl::FromUnixSeconds(1000);
  uint64_t built = 0;
  const auto build = [&] {
    v1::JobStatus status;
    status.set_step(++built);
    return status;
  };
  SharedStatus shared(build, absl::Milliseconds(50), [&] { return now; });
  CHECK(built == 0);
  const auto first = shared.Get();
  CHECK(first->step() == 1);
  now += absl::Milliseconds(49);
  CHECK(shared.Get() == first);
  now += absl::Milliseconds(1);
  CHECK(shared.Get()->step() == 2);
  // Who still writes the first one has it.
  CHECK(first->step() == 1);
  CHECK(shared.Get()->step() == 2);
  CHECK(built == 2);
}

TEST_CASE(
    "watchers share statuses, each sees new ones, and whoever asks once gets that of the moment",
    "[rpc][status]") {
  constexpr int kWatchers = 8;
  constexpr int kSeen = 4;
  std::atomic<uint64_t> built{0};
  StatusService service([&] {
    v1::JobStatus status;
    status.set_step(++built);
    return status;
  });
  const auto grpc = GrpcServer::Start({"127.0.0.1:0", {&service}}).value();
  const auto stub = v1::Status::NewStub(OpenControlChannel(grpc->address()));
  constexpr uint64_t kAskedOnce = 3;
  for (uint64_t i = 1; i <= kAskedOnce; ++i) {
    grpc::ClientContext context;
    v1::JobStatus status;
    REQUIRE(stub->Get(&context, {}, &status).ok());
    CHECK(status.step() == i);
  }
  const absl::Time begin = SteadyNow();
  std::atomic<int> grew{0};
  std::vector<std::thread> watchers;
  for (int i = 0; i < kWatchers; ++i) {
    watchers.emplace_back([&] {
      grpc::ClientContext context;
      v1::StatusRequest request;
      request.set_interval_ns(absl::ToInt64Nanoseconds(kWatchIntervalMin));
      const auto reader = stub->Watch(&context, request);
      uint64_t last = 0;
      v1::JobStatus status;
      for (int seen = 0; seen < kSeen && reader->Read(&status); ++seen) {
        grew += status.step() > last;
        last = status.step();
      }
      context.TryCancel();
    });
  }
  for (std::thread& watcher : watchers) watcher.join();
  const uint64_t built_for_watchers = built - kAskedOnce;
  const int64_t ages = 1 + (SteadyNow() - begin) / kWatchedAgeMax;
  CHECK(grew == kWatchers * kSeen);
  CHECK(built_for_watchers <= static_cast<uint64_t>(ages));
  grpc->Shutdown(absl::ZeroDuration());
}

TEST_CASE("no status is built any more for a watcher that has gone away", "[rpc][status]") {
  std::atomic<int> built{0};
  StatusService service([&] {
    ++built;
    return v1::JobStatus();
  });
  const auto grpc = GrpcServer::Start({"127.0.0.1:0", {&service}}).value();
  const auto stub = v1::Status::NewStub(OpenControlChannel(grpc->address()));
  grpc::ClientContext context;
  v1::StatusRequest request;
  request.set_interval_ns(absl::ToInt64Nanoseconds(kWatchIntervalMin));
  const auto reader = stub->Watch(&context, request);
  v1::JobStatus status;
  for (int i = 0; i < 3; ++i) REQUIRE(reader->Read(&status));
  context.TryCancel();
  CHECK(reader->Finish().error_code() == grpc::StatusCode::CANCELLED);
  // One may be on its way.
  CHECK(Eventually([&] {
    const int before = built;
    absl::SleepFor(5 * kWatchIntervalMin);
    return built == before;
  }));
  grpc->Shutdown(absl::ZeroDuration());
}

}  // namespace
}  // namespace tessera
