// Exchanges in two calls, with the caller at something else in between.
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "absl/time/clock.h"
#include "common/consistency/barrier.h"
#include "tests/server/rpc/running_servers.h"
#include "tests/worker/rpc/scripted_server.h"
#include "worker/rpc/parameter_client_grpc.h"

namespace tessera {
namespace {

// What a worker sends and where it takes values, for as long as an exchange may last.
struct Side {
  explicit Side(const RunningServers& servers, const ModelShape& shape, uint64_t member, float x)
      : client(Client(OptionsFor(servers, member))), update(shape, x), values(shape, -1.0f) {}
  absl::Status Begin(uint64_t exchange) {
    return client->BeginPushPull({Exchange(exchange), 1}, client->dense_keys(), sent,
                                 client->dense_keys(), taken);
  }

  std::unique_ptr<ParameterClientGrpc> client;
  Replica update;
  Replica values;
  const ConstParameterArrays sent = update;
  const ParameterArrays taken = values;
};

}  // namespace

TEST_CASE("an exchange that has begun goes on by itself", "[rpc][client]") {
  const ModelShape shape = TestShape(3001, 1003);  // 12 MB: many chunks
  RunningServers servers(shape, 2, MakeBarrier, 2);
  Side one(servers, shape, 1, 0.25f), two(servers, shape, 2, 0.75f);
  for (Side* side : {&one, &two}) {
    REQUIRE(side->client->Pull(Exchange(0), side->client->dense_keys(), side->values).ok());
  }
  const float initial = one.values.data[1][0];
  const auto pulled = [&servers] {
    return servers[0].service->traffic().pull_payload_bytes +
           servers[1].service->traffic().pull_payload_bytes;
  };
  for (uint64_t exchange = 1; exchange <= 3; ++exchange) {
    REQUIRE(one.Begin(exchange).ok());
    // Under a barrier the second gets its values only when the first one's push is there.
    REQUIRE(two.client
                ->PushPull({Exchange(exchange), 1}, two.client->dense_keys(), two.sent,
                           two.client->dense_keys(), two.taken)
                .ok());
    // Both have pulled this often, the first one without being asked.
    const uint64_t both = 2 * (exchange + 1) * static_cast<uint64_t>(shape.size) * 4;
    const absl::Time end = absl::Now() + absl::Seconds(20);
    while (pulled() < both && absl::Now() < end) absl::SleepFor(absl::Milliseconds(1));
    REQUIRE(pulled() == both);
    const auto result = one.client->EndPushPull();
    REQUIRE(result.status().message() == "");
    CHECK(SameBits(one.values, two.values));
    CHECK(one.values.data[1][0] == Approx(initial + 0.5f * static_cast<float>(exchange)));
    CHECK(pulled() == both);
  }
  CHECK(one.client->traffic().exchanges == 3);
  CHECK(one.client->traffic().push_payload_bytes == two.client->traffic().push_payload_bytes);
  CHECK(one.client->traffic().pull_payload_bytes == two.client->traffic().pull_payload_bytes);
}

TEST_CASE("an exchange that is dropped lets go of all memory, whoever it waited for",
          "[rpc][client]") {
  const ModelShape shape = TestShape(2500, 1000);  // 10 MB; staging holds 16
  RunningServers servers(shape, 1, MakeBarrier, 3);
  const auto staged = Client(OptionsFor(servers, 2));
  REQUIRE(staged->Push(Exchange(1), 1, staged->dense_keys(), Replica(shape, 2)).ok());
  // Waits for a place, and for workers that do not come.
  auto side = std::make_unique<Side>(servers, shape, 3, 3.0f);
  REQUIRE(side->Begin(1).ok());
  while (servers[0].service->traffic().push_payload_bytes < shape.size * 4 + 1) {
  }
  const absl::Time begin = absl::Now();
  side->client->DropPushPull();
  CHECK(absl::Now() - begin < absl::Seconds(5));
  CHECK(side->client->traffic().exchanges == 0);
  side.reset();
  // Its place was not lost, and nothing of it counts twice.
  Side again(servers, shape, 3, 3.0f), first(servers, shape, 1, 1.0f);
  REQUIRE(again.Begin(1).ok());
  REQUIRE(first.client
              ->PushPull({Exchange(1), 1}, first.client->dense_keys(), first.sent,
                         first.client->dense_keys(), first.taken)
              .ok());
  REQUIRE(again.client->EndPushPull().ok());
  CHECK(again.values.data[1][0] == 2.5f);
}

TEST_CASE("what fails beside the caller's work is tried again when it comes for it",
          "[rpc][client]") {
  Scripted scripted;
  std::atomic<int> pushes{0}, pulls{0};
  scripted.server.on_push = [&](int, const std::string&) {
    return ++pushes == 1 ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "not now") : grpc::Status();
  };
  scripted.server.on_pull = [&](int call, grpc::ServerWriter<v1::Chunk>* writer) {
    writer->Write(scripted.Chunk(call, call == 2 ? 20 : 10, true));
    if (++pulls == 1) return grpc::Status(grpc::StatusCode::ABORTED, "reader too slow");
    return grpc::Status();
  };
  Replica values(scripted.shape);
  const Replica update(scripted.shape, 3.0f);
  const ConstParameterArrays sent = update;
  const ParameterArrays taken = values;
  REQUIRE(scripted.client
              ->BeginPushPull({Exchange(6), 1}, scripted.client->dense_keys(), sent,
                              scripted.client->dense_keys(), taken)
              .ok());
  while (pushes < 1 || pulls < 1) absl::SleepFor(absl::Milliseconds(1));
  absl::SleepFor(absl::Milliseconds(50));
  CHECK((pushes == 1 && pulls == 1));
  REQUIRE(scripted.client->EndPushPull().status().message() == "");
  CHECK((pushes == 2 && pulls == 2));
  CHECK(SameBits(values, Replica(scripted.shape, 2.0f)));
}

TEST_CASE("a worker that is cancelled between the two calls sends nothing more", "[rpc][client]") {
  const ModelShape shape = TestShape(4, 4);
  RunningServers servers(shape, 1, MakeBarrier, 2);
  Side side(servers, shape, 1, 1.0f);
  REQUIRE(side.client->Pull(Exchange(0), side.client->dense_keys(), side.values).ok());
  REQUIRE(side.Begin(1).ok());
  side.client->Cancel();
  CHECK(side.client->EndPushPull().status().code() == absl::StatusCode::kCancelled);
  REQUIRE(side.Begin(2).ok());
  side.client->DropPushPull();
}

}  // namespace tessera
