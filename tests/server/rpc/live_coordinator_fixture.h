// A LiveCoordinator of a tiny job with one server, a store that fails or hangs when told to, and what is heard of it.
#ifndef TESSERA_TESTS_SERVER_RPC_LIVE_COORDINATOR_FIXTURE_H_
#define TESSERA_TESTS_SERVER_RPC_LIVE_COORDINATOR_FIXTURE_H_

#include <atomic>
#include <catch2/catch.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/base/log.h"
#include "common/base/steady_clock.h"
#include "common/rpc/control_protocol.h"
#include "proto/replication.pb.h"
#include "server/rpc/live_coordinator.h"

namespace tessera {

inline JobFacts Facts() {
  JobFacts facts;
  facts.name = "tiny";
  facts.digest = "d1";
  facts.layout_hash = 77;
  facts.servers = 1;
  facts.workers = 1;
  facts.lease_timeout = absl::Seconds(60);
  facts.epochs = 2;
  facts.batch_size = 10;
  return facts;
}

inline v1::CoordinatorWord Word(uint64_t run, uint64_t term) {
  v1::CoordinatorWord word;
  word.set_run(run);
  word.set_term(term);
  word.set_server_key(7);
  word.set_away_timeout_ns(1000);
  return word;
}

// In memory; fails, or hangs, when told to.
class FakeStore final : public StateStore {
 public:
  absl::Status Write(const v1::CoordinatorState& state) override {
    absl::MutexLock lock(&mutex_);
    ++writes_;
    mutex_.Await(absl::Condition(
        +[](bool* hangs) { return !*hangs; }, &hangs_));
    if (!fails_.ok()) return fails_;
    kept_ = state;
    return absl::OkStatus();
  }
  bool MayLag() const override { return may_lag; }
  bool IsHeld(absl::Time now) const override { return held; }
  std::string Describe() const override { return "memory"; }

  void Fail(absl::Status status) {
    absl::MutexLock lock(&mutex_);
    fails_ = std::move(status);
  }
  void Hang(bool hangs) {
    absl::MutexLock lock(&mutex_);
    hangs_ = hangs;
  }
  int writes() {
    absl::MutexLock lock(&mutex_);
    return writes_;
  }
  v1::CoordinatorState kept() {
    absl::MutexLock lock(&mutex_);
    return kept_;
  }

  std::atomic<bool> held{true};
  bool may_lag = false;

 private:
  absl::Mutex mutex_;
  int writes_ = 0;
  absl::Status fails_;
  bool hangs_ = false;
  v1::CoordinatorState kept_;
};

// What callbacks say, by any thread.
template <typename T>
class Heard {
 public:
  void Add(T value) {
    absl::MutexLock lock(&mutex_);
    values_.push_back(std::move(value));
  }
  // All of them, once there are so many; fails after ten seconds.
  std::vector<T> Await(size_t count) {
    absl::MutexLock lock(&mutex_);
    const auto enough = [&] { return values_.size() >= count; };
    REQUIRE(mutex_.AwaitWithTimeout(absl::Condition(&enough), absl::Seconds(10)));
    return values_;
  }
  size_t size() {
    absl::MutexLock lock(&mutex_);
    return values_.size();
  }
  void Clear() {
    absl::MutexLock lock(&mutex_);
    values_.clear();
  }

 private:
  absl::Mutex mutex_;
  std::vector<T> values_;
};

// What ask(done) calls `done` with.
template <typename Ask>
absl::Status Await(Ask ask) {
  absl::Status result;
  absl::Notification told;
  ask([&](const absl::Status& status) {
    result = status;
    told.Notify();
  });
  told.WaitForNotification();
  return result;
}

class LiveCoordinatorFixture {
 public:
  explicit LiveCoordinatorFixture(int workers = 1) : workers_(workers), live(absl::Seconds(2)) {
    SetLogLevel(LogLevel::kError);
    hello.set_rank(0);
    hello.set_job_digest("d1");
    hello.set_layout_hash(77);
    hello.set_life(5);
    hello.set_server_key(7);
    hello.set_address("server:7000");
  }

  void Install(const v1::CoordinatorWord& word) {
    JobFacts facts = Facts();
    facts.workers = workers_;
    auto coordinator = Coordinator::Create(std::move(facts), SteadyNow());
    REQUIRE(live.Install(*std::move(coordinator), word, &store).ok());
  }

  absl::Status Attach() {
    return AttachAs(this, [this](const v1::PlanMessage* message) {
      inbox.Add(message == nullptr ? std::nullopt : std::make_optional(*message));
    });
  }
  absl::Status AttachAs(const void* connection, LiveCoordinator::PlanSink sink) {
    return Await([&](LiveCoordinator::StatusDone done) {
      live.Attach(hello, connection, std::move(sink), std::move(done));
    });
  }

  absl::StatusOr<v1::JoinReply> Join(uint64_t run = 0, uint64_t member = 0) {
    v1::JoinRequest request;
    request.set_job_digest("d1");
    request.set_layout_hash(77);
    request.set_protocol(kControlProtocol);
    request.set_rows(100);
    request.set_member(member);
    return live.Run(run, [&](Coordinator& coordinator, absl::Time now) {
      return coordinator.Join(request, now);
    });
  }

  FakeStore store;
  v1::ServerHello hello;
  // nullopt: the connection is to end.
  Heard<std::optional<v1::PlanMessage>> inbox;
  const int workers_;
  LiveCoordinator live;
};

}  // namespace tessera

#endif  // TESSERA_TESTS_SERVER_RPC_LIVE_COORDINATOR_FIXTURE_H_
