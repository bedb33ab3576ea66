// The stream to a standby that is there, and to one that takes everything and says nothing.
#include "server/rpc/replicator.h"

#include <memory>
#include <string>
#include <utility>

#include <catch2/catch.hpp>

#include "absl/synchronization/notification.h"
#include "common/base/steady_clock.h"
#include "common/consistency/barrier.h"
#include "common/rpc/grpc_server.h"
#include "common/rule/add.h"
#include "proto/replication.grpc.pb.h"
#include "server/shard/shard_thread.h"
#include "tests/server/shard/shard_fixture.h"
#include "tests/server/shard/thread_calls.h"

namespace tessera {
namespace {

constexpr absl::Duration kSilenceMax = absl::Seconds(3);

enum class Answers { kNone, kFirst, kAll, kBeyond };

// Takes the log, and may acknowledge it.
class Standby final : public v1::Replication::Service {
 public:
  explicit Standby(Answers answers) : answers_(answers) {}

  grpc::Status Follow(grpc::ServerContext* context,
                      grpc::ServerReaderWriter<v1::LogAck, v1::LogChunk>* stream) override {
    v1::LogAck ack;
    for (v1::LogChunk chunk; stream->Read(&chunk);) {
      const bool is_first = chunk.has_header();
      for (const v1::LogEntry& entry : chunk.entries()) ack.set_position(entry.position());
      if (answers_ == Answers::kBeyond) ack.set_position(1000);
      if (answers_ == Answers::kBeyond || answers_ == Answers::kAll ||
          (answers_ == Answers::kFirst && is_first))
        stream->Write(ack);
      absl::Notification& come = is_first ? begun_ : went_on_;
      if (!come.HasBeenNotified()) come.Notify();
    }
    return grpc::Status::OK;
  }

  void AwaitBegin() { begun_.WaitForNotification(); }
  void AwaitMore() { went_on_.WaitForNotification(); }

 private:
  const Answers answers_;
  absl::Notification begun_, went_on_;
};

std::unique_ptr<Shard> MakeShard() {
  Shard::Options options;
  options.shape = ZeroMatrix(2, 3);
  options.policy = MakeBarrier();
  options.rule = MakeAdd();
  return std::make_unique<Shard>(std::move(options));
}

// As a process does that does not stand still.
void Check(Replicator* replicator, absl::Time from, absl::Time to) {
  for (absl::Time now = from; now < to; now += kSilenceMax / 4) replicator->CheckProgress(now);
  replicator->CheckProgress(to);
}

// A shard that leads, and the stream to its standby.
struct Leader {
  explicit Leader(Answers answers) : standby(answers) {
    GrpcServer::Options serving;
    serving.address = "127.0.0.1:0";
    serving.services = {&standby};
    server = GrpcServer::Start(serving).value();
    Replicator::Options options;
    options.address = server->address();
    options.shard = &shard;
    options.queue_bytes_max = 1 << 20;
    options.silence_max = kSilenceMax;
    options.on_change = [this] {
      if (!changed.HasBeenNotified()) changed.Notify();
    };
    replicator = Replicator::Make(std::move(options));
    replicator->Start();
    standby.AwaitBegin();
  }
  ~Leader() {
    replicator->End();
    shard.Post([](ServedShard& served) { served.gate().SetStandby(nullptr); });
    server->Shutdown(absl::ZeroDuration());
  }

  Standby standby;
  std::unique_ptr<GrpcServer> server;
  ShardThread shard{MakeShard()};
  absl::Notification changed;
  std::shared_ptr<Replicator> replicator;
};

TEST_CASE("a standby that takes the log and says nothing is given up when its time is over",
          "[standby]") {
  Leader leader(Answers::kNone);
  const absl::Time now = SteadyNow();
  Check(leader.replicator.get(), now, now + kSilenceMax / 2);
  CHECK(leader.replicator->report().broken().empty());
  Check(leader.replicator.get(), now + kSilenceMax / 2, now + 2 * kSilenceMax);
  CHECK_THAT(leader.replicator->report().broken(),
             Catch::StartsWith("the standby has not answered for "));
  CHECK(!leader.replicator->report().in_sync());
}

TEST_CASE("a standby that acknowledges what it was not sent is given up, and protects nothing",
          "[standby]") {
  Leader leader(Answers::kBeyond);
  leader.changed.WaitForNotification();
  CHECK_THAT(leader.replicator->report().broken(),
             Catch::Equals("the standby acknowledged entry 1000, want one from 0 to 0"));
  CHECK(!leader.replicator->report().in_sync());
}

TEST_CASE("a leader that stood still itself does not lay it on its standby", "[standby]") {
  Leader leader(Answers::kNone);
  const absl::Time now = SteadyNow();
  Check(leader.replicator.get(), now, now + kSilenceMax / 2);
  const absl::Time awake = now + 2 * kSilenceMax;
  Check(leader.replicator.get(), awake, awake + kSilenceMax);
  CHECK(leader.replicator->report().broken().empty());
  Check(leader.replicator.get(), awake + kSilenceMax, awake + 2 * kSilenceMax);
  CHECK(!leader.replicator->report().broken().empty());
}

TEST_CASE("a standby owes nothing before its stream begins", "[standby]") {
  ShardThread shard(MakeShard());
  Replicator::Options options;
  options.shard = &shard;
  options.silence_max = kSilenceMax;
  const std::shared_ptr<Replicator> replicator = Replicator::Make(std::move(options));
  const absl::Time now = SteadyNow();
  Check(replicator.get(), now, now + 10 * kSilenceMax);
  CHECK(replicator->report().broken().empty());
}

TEST_CASE("a standby that has all there is may be silent for as long as it likes", "[standby]") {
  Leader leader(Answers::kAll);
  leader.changed.WaitForNotification();
  REQUIRE(leader.replicator->report().in_sync());
  const absl::Time now = SteadyNow();
  Check(leader.replicator.get(), now, now + 10 * kSilenceMax);
  CHECK(leader.replicator->report().broken().empty());
}

TEST_CASE("a standby that falls silent later has its time from when there is something to take",
          "[standby]") {
  Leader leader(Answers::kFirst);
  leader.changed.WaitForNotification();
  REQUIRE(leader.replicator->report().in_sync());
  const absl::Time before = SteadyNow();
  SetPlan(leader.shard, PlanOfFirst(1));
  leader.standby.AwaitMore();
  Check(leader.replicator.get(), before, before + kSilenceMax);
  CHECK(leader.replicator->report().broken().empty());
  Check(leader.replicator.get(), before + kSilenceMax, before + 3 * kSilenceMax);
  CHECK_THAT(leader.replicator->report().broken(),
             Catch::StartsWith("the standby has not answered for "));
}

}  // namespace
}  // namespace tessera
