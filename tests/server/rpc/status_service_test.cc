// How often a status is built, for those who watch and those who ask once.
#include "server/rpc/status_service.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>
#include <grpcpp/grpcpp.h>

#include "common/base/steady_clock.h"
#include "common/rpc/control_channel.h"
#include "common/rpc/grpc_server.h"
#include "tests/common/base/captured_log.h"
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
  constexpr absl::Duration kAge = absl::Milliseconds(50);
  SharedStatus shared(
      build, [&] { return now; }, [] { return absl::ZeroDuration(); });
  const auto step = [&](absl::Duration age) {
    v1::JobStatus status;
    REQUIRE(status.ParseFromString(shared.Get(age)->bytes));
    return status.step();
  };
  CHECK(built == 0);
  const auto first = shared.Get(kAge);
  CHECK(step(kAge) == 1);
  now += absl::Milliseconds(49);
  CHECK(shared.Get(kAge) == first);
  now += absl::Milliseconds(1);
  CHECK(step(kAge) == 2);
  CHECK(step(kAge) == 2);
  CHECK(built == 2);
  // One that asks for the status of the moment gets it, and the others share that.
  CHECK(step(absl::ZeroDuration()) == 3);
  CHECK(step(kAge) == 3);
}

TEST_CASE("a status that costs much to build is shared for twenty times as long",
          "[rpc][status][strangers]") {
  absl::Time now = absl::FromUnixSeconds(1000);
  absl::Duration cpu;
  int built = 0;
  SharedStatus shared(
      [&] {
        ++built;
        now += absl::Milliseconds(30);
        cpu += absl::Milliseconds(30);
        return v1::JobStatus();
      },
      [&] { return now; }, [&] { return cpu; });
  shared.Get(absl::ZeroDuration());
  const absl::Time begin = now;
  while (now < begin + absl::Seconds(60)) {
    shared.Get(absl::ZeroDuration());
    now += absl::Milliseconds(1);
  }
  CHECK(built > 60);
  CHECK(built <= 1 + 60000 / (30 * SharedStatus::kSharedPerCost));
}

TEST_CASE("a status whose thread had to wait for a core is shared no longer for that",
          "[rpc][status]") {
  absl::Time now = absl::FromUnixSeconds(1000);
  int built = 0;
  SharedStatus shared(
      [&] {
        ++built;
        now += absl::Seconds(2);
        return v1::JobStatus();
      },
      [&] { return now; }, [] { return absl::ZeroDuration(); });
  for (int i = 0; i < 3; ++i) shared.Get(absl::ZeroDuration());
  CHECK(built == 3);
}

// Large statuses, each another one.
struct LargeStatus {
  LargeStatus(int bytes, StatusLimits limits)
      : service(
            [this, bytes] {
              v1::JobStatus status;
              status.set_step(++built);
              status.set_report_json(std::string(bytes, 'x'));
              return status;
            },
            limits),
        grpc(GrpcServer::Start({"127.0.0.1:0", {&service}}).value()) {}
  ~LargeStatus() { grpc->Shutdown(absl::ZeroDuration()); }

  std::unique_ptr<v1::Status::Stub> Stub() {
    return v1::Status::NewStub(OpenControlChannel(grpc->address()));
  }
  grpc::StatusCode Get(v1::Status::Stub* stub) {
    grpc::ClientContext context;
    v1::JobStatus status;
    return stub->Get(&context, {}, &status).error_code();
  }

  std::atomic<uint64_t> built{0};
  StatusService service;
  std::unique_ptr<GrpcServer> grpc;
};

TEST_CASE("statuses that nobody reads hold so many bytes, and one that reads gets its own",
          "[rpc][status][strangers]") {
  StatusLimits limits;
  limits.bytes_per_second = limits.bytes_at_once = int64_t{1} << 30;
  limits.unread_bytes_per_host = int64_t{6} << 20;
  limits.unread_bytes = int64_t{8} << 20;
  LargeStatus served(1 << 20, limits);
  // A client takes no more than 64 KiB of what nobody reads.
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  struct Unread {
    grpc::ClientContext context;
    std::unique_ptr<v1::Status::Stub> stub;
    std::unique_ptr<grpc::ClientReader<v1::JobStatus>> reader;
  };
  std::vector<std::unique_ptr<Unread>> unread;
  int64_t most = 0;
  const std::string log = CapturedLog([&] {
    while (served.service.readers().unread().given_way() == 0 && unread.size() < 200) {
      auto call = std::make_unique<Unread>();
      call->stub = v1::Status::NewStub(grpc::CreateCustomChannel(
          served.grpc->address(), grpc::InsecureChannelCredentials(), arguments));
      call->reader = call->stub->Watch(&call->context, {});
      unread.push_back(std::move(call));
      absl::SleepFor(2 * kWatchedAgeMax);  // another status for the next one
      most = std::max(most, served.service.readers().unread().bytes());
    }
  });
  CHECK(served.built > 4);
  CHECK(most > 3 << 20);
  CHECK(most <= limits.unread_bytes_per_host);
  CHECK(served.service.readers().unread().given_way() > 0);
  CHECK(log.find("a reader that does not read is cut off") != std::string::npos);
  CHECK(served.Get(served.Stub().get()) == grpc::StatusCode::OK);
  for (const auto& call : unread) {
    call->context.TryCancel();
    call->reader->Finish();
  }
  CHECK(Eventually([&] { return served.service.readers().unread().bytes() == 0; }));
}

TEST_CASE("readers that ask without a pause get so many bytes a second, later or not at all",
          "[rpc][status][strangers]") {
  StatusLimits limits;
  limits.bytes_per_second = int64_t{4} << 20;
  limits.bytes_at_once = int64_t{2} << 20;
  LargeStatus served(1 << 20, limits);
  const auto stub = served.Stub();
  const absl::Time begin = SteadyNow();
  int answered = 0;
  for (int i = 0; i < 8; ++i) answered += served.Get(stub.get()) == grpc::StatusCode::OK;
  CHECK(answered == 8);
  // The first is free, two more come at once, and the others when they are paid for.
  CHECK(SteadyNow() - begin > absl::Milliseconds(1000));
  // Many at once would wait for too long.
  std::atomic<int> refused{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < 24; ++i) {
    readers.emplace_back(
        [&] { refused += served.Get(stub.get()) == grpc::StatusCode::RESOURCE_EXHAUSTED; });
  }
  for (std::thread& reader : readers) reader.join();
  CHECK(refused > 4);
  CHECK(refused < 24);
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

TEST_CASE("a long history goes to those who want it, and the others have its newest evaluations",
          "[rpc][status][strangers]") {
  constexpr int kEvaluations = 10000;
  StatusService service([] {
    v1::JobStatus status;
    status.set_evaluations(kEvaluations);
    for (int i = 1; i <= kEvaluations; ++i) {
      v1::HistoryEntry& entry = *status.add_history();
      entry.set_step(static_cast<uint64_t>(i));
      entry.set_test_loss(1.0 / i);
      entry.set_test_accuracy(0.5);
    }
    return status;
  });
  const auto grpc = GrpcServer::Start({"127.0.0.1:0", {&service}}).value();
  const auto stub = v1::Status::NewStub(OpenControlChannel(grpc->address()));
  const auto get = [&](bool recent) {
    grpc::ClientContext context;
    v1::StatusRequest request;
    request.set_recent_history(recent);
    v1::JobStatus status;
    REQUIRE(stub->Get(&context, request, &status).ok());
    return status;
  };
  const v1::JobStatus recent = get(true);
  CHECK(recent.history_size() == kRecentHistory);
  CHECK(recent.history(0).step() == kEvaluations - kRecentHistory + 1);
  CHECK(recent.history(kRecentHistory - 1).step() == kEvaluations);
  CHECK(recent.evaluations() == kEvaluations);
  CHECK(recent.ByteSizeLong() < 2048);
  // An older client asks for no less than all.
  const v1::JobStatus all = get(false);
  CHECK(all.history_size() == kEvaluations);
  CHECK(all.history(0).step() == 1);
  // Both kinds of watchers share the same moment's status.
  for (const bool is_recent : {true, false}) {
    grpc::ClientContext context;
    v1::StatusRequest request;
    request.set_recent_history(is_recent);
    const auto reader = stub->Watch(&context, request);
    v1::JobStatus status;
    REQUIRE(reader->Read(&status));
    CHECK(status.history_size() == (is_recent ? kRecentHistory : kEvaluations));
    context.TryCancel();
  }
  // 16 MiB a second of one host are some 30 long histories: a reader of the newest is not held up by their size.
  for (int i = 0; i < 100; ++i) CHECK(get(true).evaluations() == kEvaluations);
  grpc->Shutdown(absl::ZeroDuration());
}

TEST_CASE("events are those behind the number that a call names", "[rpc][status][events]") {
  bool is_here = true;
  StatusService service([] { return v1::JobStatus(); }, StatusLimits(),
                        [&](uint64_t after) -> std::optional<v1::EventsReply> {
                          if (!is_here) return std::nullopt;
                          v1::EventsReply reply;
                          reply.add_events()->set_number(after + 1);
                          reply.set_event_count(9);
                          return reply;
                        });
  const auto grpc = GrpcServer::Start({"127.0.0.1:0", {&service}}).value();
  const auto stub = v1::Status::NewStub(OpenControlChannel(grpc->address()));
  const auto ask = [&](v1::EventsReply* reply) {
    grpc::ClientContext context;
    v1::EventsRequest request;
    request.set_after(4);
    return stub->Events(&context, request, reply);
  };
  v1::EventsReply reply;
  REQUIRE(ask(&reply).ok());
  CHECK(reply.events(0).number() == 5);
  CHECK(reply.event_count() == 9);
  is_here = false;
  CHECK(ask(&reply).error_code() == grpc::StatusCode::FAILED_PRECONDITION);
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
