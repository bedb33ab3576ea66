// A server's connections to a coordinator that says what it is told to say.
#include "server/rpc/attach_link.h"

#include <catch2/catch.hpp>

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/consistency/barrier.h"
#include "common/rule/add.h"
#include "proto/coordinator.grpc.pb.h"
#include "server/shard/shard.h"
#include "server/shard/shard_thread.h"
#include "tests/server/rpc/scripted_coordinator.h"
#include "tests/server/rpc/tiny_shape.h"

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
  shard.sharding = 1;
  shard.policy = MakeBarrier();
  shard.rule = MakeAdd();
  return std::make_unique<Shard>(std::move(shard));
}

// A server in this process, whose link may end.
struct Server {
  explicit Server(const std::string& coordinator,
                  const std::function<void(AttachLink::Options*)>& change = nullptr) {
    AttachLink::Options options;
    options.coordinator = coordinator;
    options.address = "server:0";
    options.lease_timeout = absl::Seconds(60);
    options.shard = &shard;
    options.on_end = [this](absl::Status status) { end.set_value(std::move(status)); };
    if (change) change(&options);
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
  Server server(coordinator.address(), [next_hello](AttachLink::Options* options) {
    options->fill_counters = [next_hello](v1::ServerCounters* counters) {
      if (counters->closing()) next_hello.wait();
    };
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

// What on_away says, whose first call stays until it is let go.
class SlowListener {
 public:
  void Hear(bool is_away) {
    if (!is_held_.exchange(true)) let_go_.WaitForNotificationWithTimeout(kPatience);
    absl::MutexLock lock(&mutex_);
    told_.push_back(is_away);
  }
  bool is_held() const { return is_held_; }
  void LetGo() { let_go_.Notify(); }
  std::vector<bool> told() const {
    absl::MutexLock lock(&mutex_);
    return told_;
  }

 private:
  std::atomic<bool> is_held_{false};
  absl::Notification let_go_;
  mutable absl::Mutex mutex_;
  std::vector<bool> told_ ABSL_GUARDED_BY(mutex_);
};

TEST_CASE("what is told last of the coordinator is true, though one thread is slow to tell it",
          "[control][link]") {
  std::atomic<bool> speaks{true}, over{false};
  SlowListener listener;
  Scripted coordinator([&](int, Scripted::Stream* stream) {
    v1::PlanMessage word;
    word.mutable_word()->set_run(7);
    word.mutable_word()->set_term(3);
    word.mutable_word()->set_away_timeout_ns(absl::ToInt64Nanoseconds(10 * kPatience));
    while (!over && (!speaks || stream->Write(word))) absl::SleepFor(absl::Milliseconds(10));
    return grpc::Status();
  });
  Server server(coordinator.address(), [&](AttachLink::Options* options) {
    options->lease_timeout = absl::Seconds(4);
    options->on_away = [&](bool is_away) { listener.Hear(is_away); };
  });
  const auto is_away = [&] { return server.link->OwnStatus().coordinator().is_away(); };
  CHECK(Eventually([&] { return server.link->OwnStatus().coordinator().term() == 3; }));
  speaks = false;
  CHECK(Eventually([&] { return listener.is_held(); }));
  CHECK(is_away());
  // The reading thread hears it while the writing one is still about to say that it is away.
  speaks = true;
  CHECK(Eventually([&] { return !is_away(); }));
  absl::SleepFor(absl::Milliseconds(100));  // It may not go ahead of the other.
  CHECK(listener.told().empty());
  listener.LetGo();
  REQUIRE(Eventually([&] { return listener.told().size() >= 2; }));
  CHECK(listener.told().front());
  CHECK(Eventually([&] { return !is_away() && !listener.told().back(); }));
  over = true;
}

}  // namespace
}  // namespace tessera
