#include "worker/rpc/parameter_client_grpc.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>
#include <grpcpp/grpcpp.h>

#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/consistency/barrier.h"
#include "common/consistency/none.h"
#include "proto/parameter_server.grpc.pb.h"
#include "tests/server/rpc/running_servers.h"
#include "tests/worker/rpc/scripted_server.h"

namespace tessera {
namespace {

std::unique_ptr<ConsistencyPolicy> None() { return MakeNone(1); }

Replica Initial(const ModelShape& shape) {
  Replica replica(shape);
  for (size_t i = 0; i < shape.parameters.size(); ++i) {
    FillInitialRows(shape.parameters[i], i, 7, 0, shape.parameters[i].rows, replica.data[i].data());
  }
  return replica;
}

TEST_CASE("pushes are added and pulled back, however many servers share the rows",
          "[rpc][client]") {
  // 5 and 40 servers: more than rows, so some own nothing.
  const int servers_wanted = GENERATE(1, 2, 3, 5, 40);
  const int channels = GENERATE(1, 2);
  const ModelShape shape = TestShape(3, 700);
  RunningServers servers(shape, servers_wanted, None, 1);
  ParameterClientGrpc::Options options = OptionsFor(servers, 1);
  options.channels_per_server = channels;
  const auto client = Client(options);
  Replica values(shape, -1);
  REQUIRE(client->Pull(Exchange(0), client->dense_keys(), values).ok());
  Replica want = Initial(shape);
  CHECK(SameBits(values, want));
  Replica update(shape);
  float x = 0;
  for (auto& d : update.data) {
    for (float& u : d) u = (x += 0.25f);
  }
  for (uint64_t exchange = 1; exchange <= 3; ++exchange) {
    const auto times = client->PushPull({Exchange(exchange), 10}, client->dense_keys(), update,
                                        client->dense_keys(), values);
    REQUIRE(times.status().message() == "");
    CHECK(times->push_seconds > 0);
    CHECK(times->wait_seconds >= 0);
    CHECK(times->pull_seconds >= 0);
    for (size_t i = 0; i < want.data.size(); ++i) {
      for (size_t j = 0; j < want.data[i].size(); ++j) want.data[i][j] += update.data[i][j];
    }
    CHECK(SameBits(values, want));
  }
  Replica read(shape);
  REQUIRE(client->Read(Exchange(0), IdleNotice(), read).ok());
  CHECK(SameBits(read, want));
  const uint64_t bytes = shape.size * 4;
  const Traffic traffic = client->traffic();
  CHECK(traffic.pull_payload_bytes == 4 * bytes);
  CHECK(traffic.push_payload_bytes == 3 * bytes);
  CHECK(traffic.other_payload_bytes == bytes);
  CHECK(traffic.pull_wire_bytes > traffic.pull_payload_bytes);
  CHECK(traffic.push_wire_bytes > traffic.push_payload_bytes);
  CHECK(traffic.exchanges == 3);
}

TEST_CASE("a model of many chunks arrives as it was sent", "[rpc][client]") {
  const ModelShape shape = TestShape(3001, 1003);  // 12 MB, odd sizes
  RunningServers servers(shape, 2, None, 1);
  const auto client = Client(OptionsFor(servers, 1));
  Replica values(shape);
  REQUIRE(client->Pull(Exchange(0), client->dense_keys(), values).ok());
  CHECK(SameBits(values, Initial(shape)));
  // Moves every entry to its negative, exactly.
  Replica update(shape);
  for (size_t i = 0; i < update.data.size(); ++i) {
    for (size_t j = 0; j < update.data[i].size(); ++j) update.data[i][j] = -2 * values.data[i][j];
  }
  Replica negative(shape);
  REQUIRE(
      client
          ->PushPull({Exchange(1), 1}, client->dense_keys(), update, client->dense_keys(), negative)
          .ok());
  for (auto& d : values.data) {
    for (float& x : d) x = -x;
  }
  CHECK(SameBits(values, negative));
  REQUIRE(client->Push(Exchange(2), 1, client->dense_keys(), update).ok());
}

TEST_CASE("two workers under a barrier wait for each other and get the same bits",
          "[rpc][client]") {
  const ModelShape shape = TestShape(301, 500);
  RunningServers servers(shape, 2, MakeBarrier, 2);
  std::vector<Replica> replicas(2, Replica(shape));
  std::vector<std::thread> workers;
  std::atomic<int> failures{0};
  for (int w = 0; w < 2; ++w) {
    workers.emplace_back([&, w] {
      const auto client = ParameterClientGrpc::Create(OptionsFor(servers, w + 1));
      Replica update(shape, w == 0 ? 0.1f : 0.7f);
      if (!(*client)->Pull(Exchange(0), (*client)->dense_keys(), replicas[w]).ok()) ++failures;
      for (uint64_t e = 1; e <= 20; ++e) {
        update.data[0][e] = static_cast<float>(w) + 1.0f / static_cast<float>(e);
        const KeySet& all = (*client)->dense_keys();
        if (!(*client)->PushPull({Exchange(e), 10}, all, update, all, replicas[w]).ok()) ++failures;
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  CHECK(failures == 0);
  CHECK(SameBits(replicas[0], replicas[1]));
  CHECK(replicas[0].data[1][0] == Approx(0.5f + 20 * 0.4f));
}

TEST_CASE("an error names the server and comes at once", "[rpc][client]") {
  const ModelShape shape = TestShape(4, 4);
  RunningServers servers(shape, 2, MakeBarrier, 2);
  Replica values(shape);
  const auto stranger = Client(OptionsFor(servers, 9));
  const auto pulled = stranger->Pull(Exchange(0), stranger->dense_keys(), values);
  CHECK(pulled.status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(absl::StrContains(pulled.status().message(), " at 127.0.0.1:"));
  CHECK(absl::StrContains(pulled.status().message(), ": pull from member 9: not a member"));
  // The other half of the exchange, which waits for worker 2, is given up.
  const auto client = Client(OptionsFor(servers, 1));
  Replica update(shape);
  update.data[0][15] = std::nanf("");
  const absl::Status status =
      client->PushPull({Exchange(1), 1}, client->dense_keys(), update, client->dense_keys(), values)
          .status();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(absl::StartsWith(status.message(), "server 1 at "));
  CHECK(absl::StrContains(status.message(), "layers.0.weight[3, 3] is not finite"));
  // The push to server 0 counted; the same exchange, repaired, goes through there as a duplicate.
  update.data[0][15] = 1;
  const auto other = Client(OptionsFor(servers, 2));
  REQUIRE(client->Push(Exchange(1), 1, client->dense_keys(), update).ok());
  REQUIRE(
      other->PushPull({Exchange(1), 1}, other->dense_keys(), update, other->dense_keys(), values)
          .ok());
}

TEST_CASE("an exchange can be cancelled from another thread while it waits", "[rpc][client]") {
  const ModelShape shape = TestShape(4, 4);
  RunningServers servers(shape, 1, MakeBarrier, 2);
  const auto client = Client(OptionsFor(servers, 1));
  Replica values(shape);
  REQUIRE(client->Pull(Exchange(0), client->dense_keys(), values).ok());
  std::thread other([&] { client->Cancel(); });
  const Replica update(shape);
  CHECK(
      client->PushPull({Exchange(1), 1}, client->dense_keys(), update, client->dense_keys(), values)
          .status()
          .code() == absl::StatusCode::kCancelled);
  other.join();
  CHECK(client->Pull(Exchange(0), client->dense_keys(), values).status().code() ==
        absl::StatusCode::kCancelled);
}

TEST_CASE("a push that waits for a place lets go of the update when it is cancelled",
          "[rpc][client]") {
  const ModelShape shape = TestShape(2500, 1000);  // 10 MB; staging holds 16
  RunningServers servers(shape, 1, MakeBarrier, 3);
  const auto staged = Client(OptionsFor(servers, 2));
  REQUIRE(staged->Push(Exchange(1), 1, staged->dense_keys(), Replica(shape, 2)).ok());
  const auto waiting = Client(OptionsFor(servers, 3));
  auto update = std::make_unique<Replica>(shape, 3.0f);
  absl::Status status;
  std::thread push(
      [&] { status = waiting->Push(Exchange(1), 1, waiting->dense_keys(), *update).status(); });
  while (servers[0].service->traffic().push_payload_bytes < shape.size * 4 + 1) {
  }
  const absl::Time begin = absl::Now();
  waiting->Cancel();
  push.join();
  CHECK(absl::Now() - begin < absl::Seconds(5));
  CHECK(status.code() == absl::StatusCode::kCancelled);
  update.reset();
  // Its place was not lost: the exchange completes.
  const auto again = Client(OptionsFor(servers, 3));
  absl::Status pushed;
  std::thread first([&] {
    const auto client = ParameterClientGrpc::Create(OptionsFor(servers, 1));
    pushed = (*client)->Push(Exchange(1), 1, (*client)->dense_keys(), Replica(shape, 1)).status();
    if (!pushed.ok()) again->Cancel();
  });
  Replica values(shape);
  CHECK(again
            ->PushPull({Exchange(1), 1}, again->dense_keys(), Replica(shape, 3),
                       again->dense_keys(), values)
            .ok());
  first.join();
  CHECK(pushed.message() == "");
  CHECK(values.data[1][0] == 2.5f);
}

TEST_CASE("a server that is not there is tried for the retry time and then named",
          "[rpc][client]") {
  const ModelShape shape = TestShape(4, 4);
  std::string address;
  {
    RunningServers gone(shape, 1, None, 1);
    address = gone.addresses()[0];
  }
  RunningServers servers(shape, 1, None, 1);
  ParameterClientGrpc::Options options = OptionsFor(servers, 1);
  options.servers = {address};
  options.retry_time = absl::Milliseconds(200);
  const auto client = Client(options);
  Replica values(shape);
  const absl::Time begin = absl::Now();
  const absl::Status status = client->Pull(Exchange(0), client->dense_keys(), values).status();
  CHECK(status.code() == absl::StatusCode::kUnavailable);
  CHECK(absl::StartsWith(status.message(), "server 0 at " + address + ": "));
  CHECK(absl::Now() - begin >= absl::Milliseconds(200));
}

TEST_CASE("options that do not fit together are refused", "[rpc][client]") {
  const ModelShape shape = TestShape(4, 4);
  RunningServers servers(shape, 2, None, 1);
  ParameterClientGrpc::Options options = OptionsFor(servers, 1);
  options.servers.pop_back();
  CHECK_FALSE(ParameterClientGrpc::Create(options).ok());
  options = OptionsFor(servers, 1);
  options.channels_per_server = 3;
  CHECK_FALSE(ParameterClientGrpc::Create(options).ok());
}

TEST_CASE("both halves of an exchange are repeated after a passing error", "[rpc][client]") {
  Scripted scripted;
  const grpc::StatusCode passing =
      GENERATE(grpc::StatusCode::UNAVAILABLE, grpc::StatusCode::ABORTED);
  std::vector<std::string> payloads;
  std::vector<uint64_t> exchanges;
  scripted.server.on_push = [&](int call, const std::string& payload) {
    payloads.push_back(payload);
    exchanges.push_back(scripted.server.header.exchange());
    return call < 3 ? grpc::Status(passing, "not now") : grpc::Status();
  };
  scripted.server.on_pull = [&](int call, grpc::ServerWriter<v1::Chunk>* writer) {
    writer->Write(scripted.Chunk(call, call == 2 ? 20 : 10, true));
    if (call == 1) return grpc::Status(passing, "reader too slow");
    return grpc::Status();
  };
  Replica values(scripted.shape);
  const Replica update(scripted.shape, 3.0f);
  REQUIRE(scripted.client
              ->PushPull({Exchange(6), 1}, scripted.client->dense_keys(), update,
                         scripted.client->dense_keys(), values)
              .status()
              .message() == "");
  CHECK(SameBits(values, Replica(scripted.shape, 2.0f)));
  CHECK(exchanges == std::vector<uint64_t>{6, 6, 6});
  CHECK(payloads[0].size() == 80);
  CHECK(payloads[2] == payloads[0]);
  // The version that came is the base of the next push.
  scripted.server.on_push = [](int, const std::string&) { return grpc::Status(); };
  REQUIRE(scripted.client->Push(Exchange(7), 1, scripted.client->dense_keys(), update).ok());
  CHECK(scripted.server.header.base_version() == 17);
}

TEST_CASE("an exchange that is open goes to whoever leads the shard by now", "[rpc][client]") {
  Scripted before, now;
  ParameterClientGrpc::Options options = before.Options();
  options.has_standbys = true;
  const auto client = Client(options);
  v1::ServerList list;
  list.set_generation(1);
  list.add_servers()->set_address(now.grpc->address());
  list.mutable_servers(0)->set_life(2);
  absl::Notification done;
  // It takes the push in and never answers.
  before.server.on_push = [&](int, const std::string&) {
    client->SetServers(list);
    done.WaitForNotification();
    return grpc::Status();
  };
  before.server.on_pull = [&](int, grpc::ServerWriter<v1::Chunk>*) {
    done.WaitForNotification();
    return grpc::Status();
  };
  now.server.on_push = [](int, const std::string&) { return grpc::Status(); };
  now.server.on_pull = [&](int, grpc::ServerWriter<v1::Chunk>* writer) {
    writer->Write(now.Chunk(4, 20, true));
    return grpc::Status();
  };
  Replica values(now.shape);
  const Replica update(now.shape, 3.0f);
  const auto moved = client->PushPull({Exchange(1), 1}, client->dense_keys(), update,
                                      client->dense_keys(), values);
  done.Notify();
  REQUIRE(moved.status().message() == "");
  CHECK(SameBits(values, Replica(now.shape, 4.0f)));
  CHECK(now.server.header.exchange() == 1);
}

// What was told, with the first value that was there then.
class Told final : public ValueSink {
 public:
  explicit Told(const Replica* values) : values_(*values) {}
  void Take(size_t parameter) override {
    told.emplace_back(parameter, values_.data[parameter].front());
    if (!first.HasBeenNotified()) first.Notify();
  }
  std::vector<std::pair<size_t, float>> told;
  absl::Notification first;

 private:
  const Replica& values_;
};

TEST_CASE("pulled values are told of as they come, and again where a server is asked again",
          "[rpc][client]") {
  Scripted scripted;
  Replica values(scripted.shape);
  Told sink(&values);
  bool told_early = false;
  scripted.server.on_push = [](int, const std::string&) { return grpc::Status(); };
  scripted.server.on_pull = [&](int call, grpc::ServerWriter<v1::Chunk>* writer) {
    if (call == 2) {
      writer->Write(scripted.Chunk(2, 20, true));
      return grpc::Status();
    }
    // The weight and a part of the bias.
    writer->Write(scripted.Chunk(1, 18, true));
    told_early = sink.first.WaitForNotificationWithTimeout(absl::Seconds(20));
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "not now");
  };
  OutgoingPush push{Exchange(1), 1};
  push.sink = &sink;
  const Replica update(scripted.shape, 3.0f);
  REQUIRE(scripted.client
              ->PushPull(push, scripted.client->dense_keys(), update, scripted.client->dense_keys(),
                         values)
              .status()
              .message() == "");
  CHECK(told_early);
  CHECK(sink.told == std::vector<std::pair<size_t, float>>{{0, 1.0f}, {0, 2.0f}, {1, 2.0f}});
}

TEST_CASE("a parameter is told of when the last of its servers has sent it", "[rpc][client]") {
  // Some servers own nothing of the bias, or nothing at all.
  const int count = GENERATE(1, 3, 5, 40);
  const ModelShape shape = TestShape(4, 700);
  RunningServers servers(shape, count, None, 1);
  const auto client = Client(OptionsFor(servers, 1));
  Replica values(shape);
  REQUIRE(client->Pull(Exchange(0), client->dense_keys(), values).ok());
  for (uint64_t exchange = 1; exchange <= 3; ++exchange) {
    const float want = values.data[1][0] + 1.0f;
    for (auto& d : values.data) std::fill(d.begin(), d.end(), -77.0f);
    struct Complete final : ValueSink {
      explicit Complete(const Replica* values) : values(*values) {}
      void Take(size_t p) override {
        told.push_back(p);
        for (const float x : values.data[p]) missing += x == -77.0f ? 1 : 0;
      }
      const Replica& values;
      std::vector<size_t> told;
      int missing = 0;
    } sink(&values);
    OutgoingPush push{Exchange(exchange), 1};
    push.sink = &sink;
    REQUIRE(client
                ->PushPull(push, client->dense_keys(), Replica(shape, 1.0f), client->dense_keys(),
                           values)
                .ok());
    CHECK(sink.told == std::vector<size_t>{0, 1});
    CHECK(sink.missing == 0);
    CHECK(values.data[1][0] == want);
  }
}

TEST_CASE("an answer that is not what was asked for is refused", "[rpc][client]") {
  Scripted scripted;
  Replica values(scripted.shape);
  const auto pull = [&](const std::function<void(grpc::ServerWriter<v1::Chunk>*)>& answer) {
    scripted.server.on_pull = [&answer](int, grpc::ServerWriter<v1::Chunk>* writer) {
      answer(writer);
      return grpc::Status();
    };
    const std::string message(
        scripted.client->Pull(Exchange(0), scripted.client->dense_keys(), values)
            .status()
            .message());
    const std::string where = "server 0 at " + scripted.grpc->address() + ": pull: ";
    return absl::StartsWith(message, where) ? message.substr(where.size())
                                            : "elsewhere: " + message;
  };
  CHECK(pull([&](auto* w) { w->Write(scripted.Chunk(1, 19, true)); }) ==
        "answer ended after 76 of 80 bytes");
  CHECK(pull([&](auto* w) { w->Write(scripted.Chunk(1, 21, true)); }) ==
        "answer is at least 84 bytes, want 80");
  CHECK(pull([&](auto*) {}) == "answer ended after 0 of 80 bytes");
  CHECK(pull([&](auto* w) { w->Write(scripted.Chunk(1, 20, false)); }) ==
        "answer has no header, want it in the first chunk");
  CHECK(pull([&](auto* w) {
          w->Write(scripted.Chunk(1, 10, true));
          w->Write(scripted.Chunk(1, 10, true));
        }) == "answer has a second header, want one");
  CHECK(pull([&](auto* w) {
          v1::Chunk chunk = scripted.Chunk(1, 20, true);
          chunk.mutable_header()->set_layout_hash(6);
          w->Write(chunk);
        }) == "layout_hash is 6, want 5; the model or the number of servers differs");
  // It would pass for an answer, and the values would be those of before.
  CHECK(pull([&](auto* w) {
          v1::Chunk chunk = scripted.Chunk(1, 0, true);
          chunk.mutable_header()->set_need_keys(true);
          w->Write(chunk);
        }) == "answer wants the keys of a core, and none was asked for");
}

}  // namespace
}  // namespace tessera
