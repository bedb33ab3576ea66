// A server's connections to a coordinator that says what it is told to say.
#include "server/rpc/attach_link.h"

#include <catch2/catch.hpp>

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "common/consistency/barrier.h"
#include "common/rule/add.h"
#include "proto/coordinator.grpc.pb.h"
#include "server/shard/shard.h"
#include "server/shard/shard_thread.h"
#include "tests/server/rpc/scripted_coordinator.h"

namespace tessera {
namespace {

using Scripted = ScriptedCoordinator<v1::Coordinator, v1::ShardMessage, v1::PlanMessage>;

std::unique_ptr<Shard> TinyShard() {
  ParameterSpec weight;
  weight.name = "w";
  weight.rows = 4;
  weight.columns = 2;
  Shard::Options shard;
  shard.shape.parameters = {weight};
  shard.shape.widths = {2, 4};
  shard.shape.size = weight.size();
  shard.shard = ShardId(0);
  shard.shard_count = 1;
  shard.policy = MakeBarrier();
  shard.rule = MakeAdd();
  return std::make_unique<Shard>(std::move(shard));
}

// A server in this process, whose link may end.
struct Server {
  explicit Server(const std::string& coordinator,
                  std::function<void(v1::ServerCounters*)> fill_counters = nullptr) {
    AttachLink::Options options;
    options.coordinator = coordinator;
    options.address = "server:0";
    options.lease_timeout = absl::Seconds(60);
    options.shard = &shard;
    options.fill_counters = std::move(fill_counters);
    options.on_end = [this](absl::Status status) { end.set_value(std::move(status)); };
    link = std::make_unique<AttachLink>(std::move(options));
  }
  ShardThread shard{TinyShard()};
  std::promise<absl::Status> end;
  std::unique_ptr<AttachLink> link;
};

TEST_CASE(
    "a server that was told to drain, and was cut off, says its last counters to whoever comes "
    "next",
    "[control][link]") {
  std::promise<v1::ServerHello> next;
  const auto next_hello = next.get_future().share();
  std::promise<bool> heard;
  Scripted coordinator([&](int connection, Scripted::Stream* stream) {
    v1::ShardMessage message;
    stream->Read(&message);
    if (connection == 2) next.set_value(message.hello());
    v1::PlanMessage drain;
    drain.mutable_word()->set_run(7);
    drain.mutable_word()->set_term(3);
    drain.set_drain(true);
    stream->Write(drain);
    if (connection == 1) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "away");
    while (stream->Read(&message) && !message.counters().closing()) {
    }
    if (connection == 2) heard.set_value(message.counters().closing());
    return grpc::Status();
  });
  // The last counters are not there before the first connection is gone.
  Server server(coordinator.address(), [next_hello](v1::ServerCounters* counters) {
    if (counters->closing()) next_hello.wait();
  });
  CHECK(heard.get_future().get());
  CHECK(next_hello.get().run() == 7);
  CHECK(next_hello.get().term() == 3);
  CHECK(server.end.get_future().get().ok());
}

TEST_CASE("a server hears who refuses it, and why", "[control][link]") {
  Scripted coordinator([](int, Scripted::Stream* stream) {
    v1::PlanMessage message;
    message.set_refuse("another job");
    stream->Write(message);
    return grpc::Status();
  });
  Server server(coordinator.address());
  const absl::Status end = server.end.get_future().get();
  CHECK(absl::IsFailedPrecondition(end));
  CHECK(end.message() ==
        "coordinator at " + coordinator.address() + " refused this server: another job");
}

TEST_CASE("a server ends where it is told a plan that no coordinator makes", "[control][link]") {
  Scripted coordinator([](int, Scripted::Stream* stream) {
    v1::PlanMessage message;
    message.mutable_plan()->set_generation(3);
    v1::Member& member = *message.mutable_plan()->add_members();
    member.set_member(5);
    member.set_rank(65535);
    member.set_first_exchange(1);
    stream->Write(message);
    v1::ShardMessage heard;
    while (stream->Read(&heard)) {
    }
    return grpc::Status();
  });
  Server server(coordinator.address());
  const absl::Status end = server.end.get_future().get();
  CHECK(absl::IsFailedPrecondition(end));
  CHECK(end.message() ==
        "coordinator at " + coordinator.address() +
            " sent a plan of generation 3: member 5 has rank 65535, want one below 65535; all must "
            "run the same build");
}

}  // namespace
}  // namespace tessera
