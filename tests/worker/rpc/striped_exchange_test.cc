// Exchanges whose calls go on several connections, against the same ones on one, and while connections are lost.
#include <algorithm>
#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>
#include <grpcpp/grpcpp.h>

#include "absl/time/clock.h"
#include "common/base/philox.h"
#include "common/base/steady_clock.h"
#include "common/consistency/none.h"
#include "common/rpc/grpc_server.h"
#include "common/rpc/striping/striping.h"
#include "common/rpc/windows.h"
#include "proto/parameter_server.grpc.pb.h"
#include "tests/server/rpc/running_servers.h"
#include "tests/worker/rpc/client_options.h"
#include "tests/worker/rpc/scripted_server.h"
#include "tests/worker/rpc/tcp_relay.h"
#include "worker/rpc/parameter_client_grpc.h"

namespace tessera {
namespace {

std::unique_ptr<ConsistencyPolicy> None() { return MakeNone(1); }

// Sets how many connections a call of this process may have, and back again.
struct StripesOfProcess {
  explicit StripesOfProcess(int stripes) { SetStripes(stripes); }
  ~StripesOfProcess() { SetStripes(kStripesMax); }
};

Replica Update(const ModelShape& shape, uint64_t number) {
  Replica update(shape);
  uint64_t b = 0;
  for (auto& array : update.data) {
    for (size_t i = 0; i < array.size(); i += 4) {
      const PhiloxBlock random = Philox(number, Stream::kInitialValues, 99, b++);
      for (size_t j = i; j < std::min(i + 4, array.size()); ++j) {
        array[j] = UnitFloat(random[j - i]) - 0.5f;
      }
    }
  }
  return update;
}

// The values after so many exchanges.
Replica TrainOn(ParameterClientGrpc& client, const ModelShape& shape, int exchanges) {
  Replica values(shape);
  REQUIRE(client.Pull(Exchange(0), client.dense_keys(), values).status().message() == "");
  for (int exchange = 1; exchange <= exchanges; ++exchange) {
    const auto result = client.PushPull(
        {Exchange(static_cast<uint64_t>(exchange)), 1}, client.dense_keys(),
        Update(shape, static_cast<uint64_t>(exchange)), client.dense_keys(), values);
    REQUIRE(result.status().message() == "");
  }
  return values;
}

TEST_CASE("calls on several connections bring the bits that one brings", "[rpc][stripes]") {
  // 2 and 5 connections for each server.
  const ModelShape shape = GENERATE(TestShape(2100, 2003), TestShape(5300, 2003));
  const int count = GENERATE(1, 2);
  RunningServers one(shape, count, None, 1);
  RunningServers several(shape, count, None, 1);
  constexpr int kExchanges = 6;
  const Replica want = [&] {
    const StripesOfProcess stripes(1);
    const auto client = Client(OptionsFor(one, 1));
    Replica values = TrainOn(*client, shape, kExchanges);
    CHECK(client->striped_calls() == 0);
    return values;
  }();
  const auto client = Client(OptionsFor(several, 1));
  CHECK(SameBits(TrainOn(*client, shape, kExchanges), want));
  const Traffic traffic = client->traffic();
  CHECK(traffic.push_payload_bytes == static_cast<uint64_t>(kExchanges * shape.size * 4));
  CHECK(traffic.pull_payload_bytes == static_cast<uint64_t>((kExchanges + 1) * shape.size * 4));
  // The first calls teach that there may be several and have them opened, which a busy machine does in its own time.
  const bool is_large = StripesFor(shape.size * 4 / count, kStripesMax) > 1;
  for (int i = 0; is_large && i < 200 && client->striped_calls() == 0; ++i) {
    Replica read(shape);
    REQUIRE(client->Read(Exchange(0), IdleNotice(), read).status().message() == "");
    CHECK(SameBits(read, want));
  }
  CHECK((client->striped_calls() > 0) == is_large);
}

TEST_CASE("a server that is told so takes calls on one connection", "[rpc][stripes]") {
  const ModelShape shape = TestShape(2500, 2003);
  const StripesOfProcess stripes(1);
  RunningServers servers(shape, 1, None, 1);
  const auto client = Client(OptionsFor(servers, 1));
  TrainOn(*client, shape, 4);
  CHECK(client->striped_calls() == 0);
}

TEST_CASE("connections that are lost at any moment cost attempts and no bit", "[rpc][stripes]") {
  const ModelShape shape = TestShape(5300, 2003);
  const uint64_t seed = GENERATE(1, 2, 3);
  constexpr int kExchanges = 12;
  RunningServers servers(shape, 1, None, 1);
  const Replica want = [&] {
    RunningServers undisturbed(shape, 1, None, 1);
    const auto client = Client(OptionsFor(undisturbed, 1));
    return TrainOn(*client, shape, kExchanges);
  }();
  TcpRelay relay(servers.addresses()[0]);
  ParameterClientGrpc::Options options = OptionsFor(servers, 1);
  options.servers = {relay.address()};
  options.retry_time = absl::Seconds(60);
  const auto client = Client(options);
  std::atomic<bool> is_over{false};
  std::thread cuts([&] {
    std::mt19937_64 random(seed);
    while (!is_over) {
      absl::SleepFor(absl::Milliseconds(30 + random() % 200));
      // The first connections are the call's own, the others those behind it.
      relay.CutOne(random());
    }
  });
  const Replica values = TrainOn(*client, shape, kExchanges);
  is_over = true;
  cuts.join();
  CHECK(SameBits(values, want));
  CHECK(relay.cut() > 0);
}

TEST_CASE("where further connections come to nothing calls go on one", "[rpc][stripes]") {
  const ModelShape shape = TestShape(2500, 2003);
  RunningServers servers(shape, 1, None, 1);
  // It lets one connection through, and the others stand without a word.
  TcpRelay relay(servers.addresses()[0], /*connections_max=*/1);
  ParameterClientGrpc::Options options = OptionsFor(servers, 1);
  options.servers = {relay.address()};
  const auto client = Client(options);
  const absl::Time begin = SteadyNow();
  TrainOn(*client, shape, 4);
  CHECK(client->striped_calls() == 0);
  // None has waited for a connection, which gRPC would give up after some seconds.
  CHECK(SteadyNow() - begin < absl::Seconds(60));
}

// A server that answers pulls with ones, in chunks of a mebibyte, and whose further connections have no end until they
// are given up.
class EndlessStripes final : public v1::ParameterServer::Service {
 public:
  explicit EndlessStripes(const ModelShape& shape) : left_(shape.size * 4) {}

  grpc::Status Pull(grpc::ServerContext* context, const v1::PullRequest*,
                    grpc::ServerWriter<v1::Chunk>* writer) override {
    Answer(*context, [&](const v1::Chunk& chunk) { writer->Write(chunk); });
    return grpc::Status();
  }
  grpc::Status Stripe(grpc::ServerContext* context,
                      grpc::ServerReaderWriter<v1::Chunk, v1::PushChunk>* stream) override {
    Answer(*context, [&](const v1::Chunk& chunk) { stream->Write(chunk); });
    while (!context->IsCancelled()) absl::SleepFor(absl::Milliseconds(10));
    ++given_up;
    return grpc::Status();
  }

  std::atomic<int> given_up{0};

 private:
  template <typename Write>
  void Answer(const grpc::ServerContext& context, Write write) {
    StripeName name;
    name.count = 1;
    const auto found = context.client_metadata().find(kStripeKey);
    if (found != context.client_metadata().end()) {
      name = *ParseStripeName({found->second.data(), found->second.size()});
    }
    constexpr int64_t kPieceFloats = 1 << 18;
    int number = 0;
    for (int64_t left = left_; left > 0; left -= 4 * kPieceFloats, ++number) {
      if (number % name.count != name.number) continue;
      v1::Chunk chunk;
      if (number == 0) {
        chunk.mutable_header()->set_layout_hash(5);
        chunk.mutable_header()->set_connections(kStripesMax);
      }
      const std::vector<float> ones(static_cast<size_t>(std::min(left / 4, kPieceFloats)), 1.0f);
      chunk.set_payload(std::string(reinterpret_cast<const char*>(ones.data()), 4 * ones.size()));
      write(chunk);
    }
  }

  const int64_t left_;
};

TEST_CASE("a call that has all is not kept by connections that do not end", "[rpc][stripes]") {
  const ModelShape shape = TestShape(2500, 2003);
  EndlessStripes server(shape);
  const auto grpc = GrpcServer::Start({"127.0.0.1:0", {&server}});
  REQUIRE(grpc.ok());
  ParameterClientGrpc::Options options;
  options.servers = {(*grpc)->address()};
  options.slices = {SlicesOf(shape, ShardId(0), 1)};
  options.layout_hash = 5;
  options.member = MemberId(1);
  const auto client = Client(options);
  Replica values(shape);
  // A further connection is there some time after the first answer has said that there may be one.
  for (int i = 0; i < 200 && client->striped_calls() == 0; ++i) {
    values = Replica(shape);
    REQUIRE(client->Pull(Exchange(0), client->dense_keys(), values).status().message() == "");
    CHECK(SameBits(values, Replica(shape, 1.0f)));
  }
  CHECK(client->striped_calls() > 0);
  CHECK(server.given_up > 0);
  (*grpc)->Shutdown(absl::ZeroDuration());
}

}  // namespace
}  // namespace tessera
